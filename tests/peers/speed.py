"""Prompt and decode speed of Kvern and llama.cpp on the same model, alternating in one run.

    speed.py PEERS_DIR KVERN MODEL [--rounds N] [--prompt N] [--new N]

Each round runs both programs with 1 thread and with all cores: `kvern run` on a prompt of that many
tokens, and `llama-bench -p -n`. Prints medians with their ranges, and Kvern's ratio of medians.
llama-bench decodes from an empty context, Kvern behind its prompt, which is the harder case.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

WORDS = "the mill grinds grain and the same grain gives the same flour every time so "


def prompt_file(kvern, model, num_tokens, folder):
    """A text of exactly num_tokens tokens, one word each."""
    path = Path(folder) / "prompt.txt"
    words = (WORDS * (num_tokens // 10 + 2)).split()
    for count in range(num_tokens, 0, -1):
        path.write_text(" ".join(words[:count]))
        command = [kvern, "tokenize", "-m", model, "-f", path, "--json"]
        counted = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        if counted["count"] <= num_tokens:
            return path
    raise SystemExit("speed.py: no prompt of the wanted length")


def run_kvern(args, threads, prompt):
    command = [args.kvern, "run", "-m", args.model, "-no-cnv", "-f", prompt, "--temp", "0"]
    command += ["-n", str(args.new), "-t", str(threads), "-c", "2048", "--json"]
    timings = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["timings"]
    return timings["prefill_per_second"], timings["decode_per_second"]


def run_llama(args, threads):
    command = [Path(args.peers) / "lb/bin/llama-bench", "-m", args.model, "-r", "1", "-o", "json"]
    command += ["-p", str(args.prompt), "-n", str(args.new), "-t", str(threads)]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    prefill = next(row for row in rows if row["n_prompt"] > 0)
    decode = next(row for row in rows if row["n_gen"] > 0)
    return prefill["avg_ts"], decode["avg_ts"]


def summary(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f}–{max(values):.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("peers")
    parser.add_argument("kvern")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    args = parser.parse_args()

    thread_counts = sorted({1, os.cpu_count()})
    samples = {}
    with tempfile.TemporaryDirectory() as folder:
        prompt = prompt_file(args.kvern, args.model, args.prompt, folder)
        for _ in range(args.rounds):
            for threads in thread_counts:
                for name, (prefill, decode) in (
                    ("kvern", run_kvern(args, threads, prompt)),
                    ("llama.cpp", run_llama(args, threads)),
                ):
                    samples.setdefault((threads, f"pp{args.prompt}", name), []).append(prefill)
                    samples.setdefault((threads, f"tg{args.new}", name), []).append(decode)

    print(f"t/s, median (range) of {args.rounds} rounds")
    print("| threads | test | Kvern | llama.cpp | ratio |")
    print("|---|---|---|---|---|")
    for threads in thread_counts:
        for test in (f"pp{args.prompt}", f"tg{args.new}"):
            ours = samples[threads, test, "kvern"]
            theirs = samples[threads, test, "llama.cpp"]
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(f"| {threads} | {test} | {summary(ours)} | {summary(theirs)} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
