"""What HTTP costs Kvern, and how users fare who come to a server together: parts of scripts/bench-serve.

One client drives every server: `kvern bench serve --url`.
"""

import http.client
import json
import random
import resource
import socket
import statistics
import threading
import time

from bench.llama_server import LlamaServer
from bench.process import BenchError, output_of
from bench.running_server import RunningServer

TIMEOUT_S = 1800
ROUNDS = 3
COMPUTE_THREADS = ("kvern-engine", "kvern-compute")
# What a server has by default, for the engine that it is compared with.
ROOM = ("-c", 4096, "--kv-tokens", 16384)
STREAMS, QUEUED = 32, 1000
PROBES, PROBE_PERIOD_S = 1000, 0.01


def kvern_server(setup, *flags):
    return RunningServer("kvern serve", [setup.kvern, "serve", "-m", setup.model, "-t",
                                         setup.threads, *flags], setup.folder / "kvern.log")


def drive(setup, *flags):
    """What `kvern bench serve` says of the workload shared-prefix."""
    said = json.loads(output_of([setup.kvern, "bench", "serve", "shared-prefix", "--json", *flags],
                                TIMEOUT_S))
    if said["requests"]["done"] != sum(said["requests"].values()):
        raise BenchError(f"kvern bench serve: not all were answered: {said['requests']}")
    return said


def in_process(setup, *flags):
    return drive(setup, "-m", setup.model, "-t", setup.threads, *ROOM, *flags)


def compare_together(setup, users, say):
    """Users who arrive together at a fresh server, then as many others behind the same prefix."""
    say(f"{users} users together, one prefix of 2,048 tokens, 64 of their own, 64 new")
    flags = ("--prefix", 2048, "--tail", 64, "--new", 64)
    llama = LlamaServer(setup.llama, setup.model, users, users * 2560, setup.threads,
                        setup.folder / "llama-server.log", is_unified=False)
    ours = {}
    for name, server in (("Kvern", kvern_server(setup)), ("llama-server", llama)):
        with server:
            for round_name, plan in (("cold", ("--requests", users)),
                                     ("warm", ("--requests", 2 * users, "--skip", users))):
                said = drive(setup, "--url", server.url, *flags, *plan)
                seconds, rate = said["seconds"], said["output_tokens_per_second"]
                p50, p99 = (said["ttft_us"][key] / 1e6 for key in ("p50", "p99"))
                line = (f"{name}, {round_name}: {seconds:.2f} s, {rate:.1f} t/s, TTFT p50 {p50:.2f} s, "
                        f"p99 {p99:.2f} s, {said['cached_tokens'] / said['prompt_tokens']:.0%} of the "
                        "prompts cached")
                if name == "Kvern":
                    ours[round_name] = (rate, p50, p99)
                else:
                    our_rate, our_p50, our_p99 = ours[round_name]
                    asked = {"cold": "40x and 80x", "warm": "6x and 8x"}[round_name]
                    line += (f": Kvern has {our_rate / rate:.1f}x in throughput, {p99 / our_p99:.1f}x in "
                             f"TTFT p99 (asked: {asked}), {p50 / our_p50:.1f}x in TTFT p50")
                say(line)


def compare_overhead(setup, say):
    """Streams over HTTP against the same streams in the engine's own process."""
    flags = ("--requests", STREAMS, "--new", 128, "--warm")
    shares, of_cpu = [], []
    for seed in range(1, ROUNDS + 1):
        alone = in_process(setup, *flags, "--seed", seed)["output_tokens_per_second"]
        with kvern_server(setup, *ROOM) as server:
            before = server.cpu_ticks()
            over_http = drive(setup, "--url", server.url, *flags, "--seed", seed)
            after = server.cpu_ticks()
        ticks = {name: after[name] - before.get(name, 0) for name in after}
        others = sum(count for name, count in ticks.items() if name not in COMPUTE_THREADS)
        of_cpu.append(others / sum(ticks.values()))
        shares.append(over_http["output_tokens_per_second"] / alone)
        say(f"{STREAMS} streams: in process {alone:.1f} t/s, over HTTP "
            f"{over_http['output_tokens_per_second']:.1f} t/s: {shares[-1]:.1%}; other threads than "
            f"those that compute {of_cpu[-1]:.2%} of the server's CPU time ("
            + ", ".join(f"{name} {count}" for name, count in sorted(ticks.items()) if count)
            + " ticks)")
    say(f"median of {ROUNDS}: {statistics.median(shares):.1%} of the tokens/s (asked: 95%), "
        f"{statistics.median(of_cpu):.2%} of CPU (asked: at most 3%)")


def compare_idle(setup, say):
    """Time to the first token of requests that come one after the other to an idle server."""
    flags = ("--requests", 200, "--concurrency", 1, "--prefix", 16, "--tail", 4, "--new", 2, "--warm")
    added = []
    for seed in range(1, ROUNDS + 1):
        alone = in_process(setup, *flags, "--seed", seed)["ttft_us"]["p50"] / 1e3
        with kvern_server(setup, *ROOM) as server:
            over_http = drive(setup, "--url", server.url, *flags, "--seed", seed)["ttft_us"]["p50"] / 1e3
        added.append(over_http - alone)
        say(f"TTFT p50 of 200 single requests: in process {alone:.2f} ms, over HTTP {over_http:.2f} ms: "
            f"{added[-1]:.2f} ms more")
    say(f"median of {ROUNDS}: {statistics.median(added):.2f} ms more (asked: at most 1 ms)")


def send(server, prompt, new_tokens):
    """A connection on which a stream has been asked for."""
    body = json.dumps({"prompt": prompt, "max_tokens": new_tokens, "stream": True, "temperature": 0,
                       "ignore_eos": True}).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                       + str(len(body)).encode() + b"\r\n\r\n" + body)
    return connection


def await_metric(server, name, is_enough, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not is_enough(server.metric(name)):
        if time.monotonic() > deadline:
            raise BenchError(f"kvern serve: {name} did not come to what was awaited in {timeout_s} s")
        time.sleep(0.05)


def measure_queued(setup, say):
    """Memory of streams that wait for their turn, each on a connection of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * QUEUED), hard))
    with kvern_server(setup, "--max-running", 1, "-c", 4096, "--kv-tokens", 4096) as server:
        # Every block has been written before, so that what the running one writes costs nothing.
        with send(server, [5 + i % 1000 for i in range(4000)], 1) as connection:
            while b"[DONE]" not in connection.recv(65536):
                pass
        holder = send(server, [1] * 16, 4000)
        await_metric(server, "vllm:num_requests_running", lambda count: count == 1)
        before = server.resident_bytes()
        queued = [send(server, [2 + i] * 16, 16) for i in range(QUEUED)]
        await_metric(server, "vllm:num_requests_waiting", lambda count: count >= QUEUED)
        after = server.resident_bytes()
        for connection in (holder, *queued):
            connection.close()
        await_metric(server, "vllm:num_requests_waiting", lambda count: count == 0)
        await_metric(server, "vllm:num_requests_running", lambda count: count == 0)
        end = server.resident_bytes()
    say(f"{QUEUED} queued streams: VmRSS {before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB with them: "
        f"{(after - before) / QUEUED / 1024:.1f} KiB each (asked: at most 64); {end / 2**20:.1f} MiB after "
        "they have gone")


def probe(server, count):
    """Milliseconds of `count` health checks on one connection, one after the other."""
    times = []
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(count):
        begin = time.monotonic()
        connection.request("GET", "/health")
        reply = connection.getresponse()
        reply.read()
        times.append(1e3 * (time.monotonic() - begin))
        if reply.status != 200:
            raise BenchError(f"kvern serve: /health answered {reply.status}")
        time.sleep(PROBE_PERIOD_S)
    connection.close()
    return times


def measure_health(setup, say):
    """Health checks while a long prompt is computed and a large body is read, all the time."""
    numbers = random.Random(1)
    with kvern_server(setup, "-c", 8192, "--kv-tokens", 16384) as server:
        is_over = threading.Event()
        prompts, bodies = [], []

        def prefill():
            while not is_over.is_set():
                prompt = [numbers.randrange(5, 5000) for _ in range(8000)]
                with send(server, prompt, 1) as connection:
                    while not is_over.is_set() and b"[DONE]" not in connection.recv(65536):
                        pass
                prompts.append(len(prompt))

        def post_body():
            body = json.dumps({"content": "a " * (5 << 20)}).encode()
            while not is_over.is_set():
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
                connection.request("POST", "/tokenize", body)
                connection.getresponse().read()
                connection.close()
                bodies.append(len(body))

        threads = [threading.Thread(target=work) for work in (prefill, post_body)]
        for thread in threads:
            thread.start()
        await_metric(server, "vllm:num_requests_running", lambda count: count == 1)
        times = sorted(probe(server, PROBES))
        is_over.set()
        for thread in threads:
            thread.join()
    say(f"/health, {PROBES} times beside prompts of 8,000 tokens ({len(prompts)} begun) and bodies of "
        f"10 MB ({len(bodies)} read): p50 {times[PROBES // 2]:.1f} ms, p99 {times[PROBES * 99 // 100]:.1f} ms, "
        f"max {times[-1]:.1f} ms (asked: p99 at most 50 ms, max 250 ms)")
