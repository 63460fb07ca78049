"""Kvern beside llama.cpp's server and OpenVINO GenAI under load: the same tokens, in turn.

scripts/bench-serve runs it; docs/bench-serve.md says what is measured.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from bench.llama_server import LlamaServer
from bench.peers import MODEL
from bench.plan import read_plan
from bench.process import BenchError, output_of
from bench.serve_http import (compare_idle, compare_overhead, compare_together, measure_health,
                              measure_queued)

TIMEOUT_S = 1800
MIXED_STREAMS, MIXED_SLOTS, MIXED_CONTEXT = 4, 5, 20480
SETTLING, UNDISTURBED, STREAM_TOKENS = 8, 128, 2048


@dataclass(frozen=True)
class Setup:
    kvern: Path
    llama: Path  # folder of its programs
    openvino: Path | None  # a Python that has openvino-genai
    model: Path
    threads: int
    folder: Path  # for logs and plans

    @property
    def plan(self):
        return self.folder / "plan.jsonl"


@dataclass(frozen=True)
class Work:
    """A workload whose plan the peers follow too. llama-server gets so many slots and cells."""

    name: str
    flags: tuple
    slots: int
    cells: int


PLANS = [
    Work("chat", (), 8, 8192),
    Work("agents", (), 8, 16384),
    Work("documents", (), 16, 32768),
    Work("trace", ("--trace", "tests/data/traces/azure_llm_2023_conv.csv", "--requests", 16,
                   "--rate", 0.5), 8, 32768),
]


# Of HTTP itself: bench/serve_http.py.
HTTP_PARTS = {"overhead": compare_overhead, "idle": compare_idle, "queued": measure_queued,
              "health": measure_health}


def nearest_rank(values, share):
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def run_kvern(setup, workload, *flags):
    """What `kvern bench serve --json` says, and the requests that it served."""
    command = [setup.kvern, "bench", "serve", workload, "-m", setup.model, "-t", setup.threads,
               "--json", "--prompts", setup.plan, *flags]
    said = json.loads(output_of(command, TIMEOUT_S))
    _, requests = read_plan(setup.plan)
    return said, requests


def run_openvino(setup, mode):
    """On the plan of the last run_kvern()."""
    command = [setup.openvino, "-m", "bench.openvino_serve", setup.model, setup.plan,
               setup.threads, mode]
    return json.loads(output_of(command, TIMEOUT_S).strip().splitlines()[-1])


def prompts_of(requests):
    return [request.tokens({}) for request in requests]


def shared_flags(users, new_tokens):
    return ["--requests", users, "--new", new_tokens]


def compare_llama_shared(setup, users, new_tokens, say):
    """Users that arrive together: cold, then with the prefix cached."""
    flags = shared_flags(users, new_tokens)
    cold, _ = run_kvern(setup, "shared-prefix", *flags)
    warm, _ = run_kvern(setup, "shared-prefix", *flags, "--warm")
    # Twice as many tails of the same prefix: each round has its own.
    _, requests = run_kvern(setup, "shared-prefix", *shared_flags(2 * users, 1))
    prompts = prompts_of(requests)
    context = 20480 if users <= 8 else users * 2560
    server = LlamaServer(setup.llama, setup.model, users, context, setup.threads,
                         setup.folder / "llama-server.log")
    with server:
        server.ask_together([prompts[0][-32:]], 4)
        for name, ours, tails in (("cold", cold, prompts[:users]), ("warm", warm, prompts[users:])):
            seconds, replies = server.ask_together(tails, new_tokens)
            ttft = nearest_rank([reply.ttft for reply in replies], 0.99)
            tokens = sum(len(reply.chunks) for reply in replies)
            cached = statistics.mean(reply.cached_tokens for reply in replies)
            ours_ttft = ours["ttft_us"]["p99"] / 1e6
            say(f"{users} users, {new_tokens} new, {name}: Kvern {ours['seconds']:.2f} s, TTFT p99 "
                f"{ours_ttft:.2f} s; llama-server {seconds:.2f} s, TTFT p99 {ttft:.2f} s "
                f"({tokens} tokens, {cached:.0f} cached a prompt): "
                f"{seconds / ours['seconds']:.1f}x in time, {ttft / ours_ttft:.1f}x in TTFT")


def compare_openvino_shared(setup, users, new_tokens, say):
    for mode in ("cold", "warm"):
        flags = [*shared_flags(users, new_tokens), *(["--warm"] if mode == "warm" else [])]
        ours, _ = run_kvern(setup, "shared-prefix", *flags)
        theirs = run_openvino(setup, mode)
        say(f"{users} requests, {new_tokens} new, {mode}: Kvern {ours['seconds']:.2f} s; OpenVINO GenAI "
            f"{theirs['seconds']:.2f} s ({theirs['output_tokens']} tokens): "
            f"{theirs['seconds'] / ours['seconds']:.1f}x in time")


def compare_plan(setup, work, say):
    """One workload on each program, nothing cached."""

    def tell(name, seconds, tokens, ttft_p50, ttft_p99, rest):
        say(f"{work.name}: {name} {seconds:.2f} s, {tokens / seconds:.0f} t/s generated, "
            f"TTFT p50 {ttft_p50:.2f} s, p99 {ttft_p99:.2f} s{rest}")

    def tell_peer(name, seconds, tokens, ttft, cached=""):
        p50, p99 = nearest_rank(ttft, 0.5), nearest_rank(ttft, 0.99)
        tell(name, seconds, tokens, p50, p99, f"{cached}: {seconds / ours['seconds']:.1f}x in time, "
             f"{p50 / (ours_ttft['p50'] / 1e6):.1f}x in TTFT p50")

    ours, requests = run_kvern(setup, work.name, *work.flags)
    ours_ttft, prompt_tokens = ours["ttft_us"], ours["prompt_tokens"]
    found = 1 - sum(ours["prompts"]["miss"].values()) / prompt_tokens
    tell("Kvern", ours["seconds"], ours["output_tokens"], ours_ttft["p50"] / 1e6,
         ours_ttft["p99"] / 1e6, f", {found:.0%} of the prompts found")
    server = LlamaServer(setup.llama, setup.model, work.slots, work.cells, setup.threads,
                         setup.folder / "llama-server.log")
    with server:
        server.ask_together([requests[0].tokens({})[-32:]], 4)
        seconds, replies, ttft = server.follow(requests)
    cached = sum(reply.cached_tokens for reply in replies.values()) / prompt_tokens
    tell_peer("llama-server", seconds, sum(len(reply.chunks) for reply in replies.values()),
              ttft.values(), f", {cached:.0%} of the prompts cached")
    if setup.openvino:
        theirs = run_openvino(setup, "cold")
        tell_peer("OpenVINO GenAI", theirs["seconds"], theirs["output_tokens"], theirs["ttft"])


class Streams:
    """Decoding streams on llama-server, and when all of them have so many tokens."""

    def __init__(self, server, prompts):
        self.over, self.all_ready = threading.Event(), threading.Event()
        self.prompts, self.num_ready, self.lock = prompts, 0, threading.Lock()
        self.started = [server.start(prompt, STREAM_TOKENS, self.count, self.over)
                        for prompt in prompts]

    def count(self, reply):
        if len(reply.chunks) == SETTLING + UNDISTURBED:
            with self.lock:
                self.num_ready += 1
                if self.num_ready == len(self.prompts):
                    self.all_ready.set()

    def wait_until_undisturbed(self):
        if not self.all_ready.wait(TIMEOUT_S):
            raise BenchError("llama-server: its streams did not get on")

    def end(self):
        self.over.set()
        for thread, _ in self.started:
            thread.join()

    def gaps(self, begin, end):
        """Times between tokens that ended in (begin, end]."""
        found = []
        for _, reply in self.started:
            pairs = zip(reply.chunks, reply.chunks[1:])
            found += [b - a for a, b in pairs if a >= self.settled and begin < b <= end]
        return found

    @property
    def settled(self):
        return max(reply.chunks[SETTLING] for _, reply in self.started)


def compare_mixed_prefill(setup, say):
    ours, requests = run_kvern(setup, "mixed-prefill")
    for row in ours["settings"]:
        say(f"Kvern, {row['setting']}: undisturbed p99 {row['undisturbed_itl_us']['p99'] / 1e3:.1f} ms, "
            f"disturbed p99 {row['disturbed_itl_us']['p99'] / 1e3:.1f} ms, prefill "
            f"{row['prefill_mixed_tokens_per_second']:.0f} of "
            f"{row['prefill_alone_tokens_per_second']:.0f} t/s")
    alone, *stream_prompts, late = prompts_of(requests)
    stream_prompts = stream_prompts[-MIXED_STREAMS:]  # the last of several rounds
    server = LlamaServer(setup.llama, setup.model, MIXED_SLOTS, MIXED_CONTEXT, setup.threads,
                         setup.folder / "llama-server.log")
    with server:
        server.ask_together([alone[-32:]], 4)
        _, (reply,) = server.ask_together([alone], 1)
        alone_rate = len(alone) / reply.ttft
        streams = Streams(server, stream_prompts)
        streams.wait_until_undisturbed()
        arrival = time.monotonic()
        _, (reply,) = server.ask_together([late], 1)
        first = reply.chunks[0]
        streams.end()
    before = streams.gaps(streams.settled, arrival)
    during = streams.gaps(arrival, first)
    if not during:
        during = [first - arrival]  # no stream had a token meanwhile
    say(f"llama-server: undisturbed p99 {nearest_rank(before, 0.99) * 1e3:.1f} ms, disturbed p99 "
        f"{nearest_rank(during, 0.99) * 1e3:.1f} ms, max {max(during) * 1e3:.0f} ms, prefill "
        f"{len(late) / reply.ttft:.0f} of {alone_rate:.0f} t/s")


def parse(argv):
    parser = argparse.ArgumentParser(prog="scripts/bench-serve", description=__doc__)
    names = ["server", *HTTP_PARTS, "llama", "openvino", "mixed", *(work.name for work in PLANS)]
    parser.add_argument("comparisons", nargs="*", metavar="COMPARISON",
                        help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--kvern", type=Path, default=Path("build/release/kvern"))
    parser.add_argument("--llama", type=Path, required=True, help="folder of llama.cpp's programs")
    parser.add_argument("--openvino", type=Path, help="a Python that has openvino-genai")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--users", type=int, default=8,
                        help="of the comparison llama; server has 32 (default 8)")
    args = parser.parse_args(argv)
    for name in args.comparisons:
        if name not in names:
            parser.error(f"{name}: use one of {', '.join(names)}")
    args.comparisons = args.comparisons or names
    return args


def main(argv=None):
    args = parse(argv)

    def say(line):
        print(line, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(args.kvern, args.llama, args.openvino, args.model, args.threads, Path(folder))
        try:
            if "server" in args.comparisons:
                compare_together(setup, 32, say)
            for name, compare in HTTP_PARTS.items():
                if name in args.comparisons:
                    compare(setup, say)
            if "llama" in args.comparisons:
                compare_llama_shared(setup, args.users, 64, say)
            if "openvino" in args.comparisons and setup.openvino:
                compare_openvino_shared(setup, 32, 32, say)
            if "mixed" in args.comparisons:
                compare_mixed_prefill(setup, say)
            for work in PLANS:
                if work.name in args.comparisons:
                    compare_plan(setup, work, say)
        except BenchError as error:
            print(f"scripts/bench-serve: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
