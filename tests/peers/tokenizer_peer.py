"""Compares Kvern's token ids with llama.cpp's, byte for byte.

    tokenizer_peer.py PEERS_DIR TOKENIZE_LINES MODEL [--strings N] [--seed S] [--only NAME]

PEERS_DIR holds a llama.cpp build (scripts/build-llama-cpp), TOKENIZE_LINES is the program of that
name, MODEL is the default model, whose vocabulary is the one for "smollm". For each vocabulary:

- the texts that come with llama.cpp's vocabularies give the ids that come with them;
- N generated strings give the ids of llama.cpp's own library: all scripts, combining marks, emoji,
  control characters, line ends, odd spaces, digits, contractions, special tokens, broken UTF-8;
- every token has the same bytes, and the same tokens end a generation.
"""

import argparse
import concurrent.futures
import random
import struct
import subprocess
import sys
import time
from pathlib import Path

import unicode_strings

SOURCE = Path(__file__).with_name("llama_tokenize.cc")
VOCABULARIES = ("gpt-2", "smollm", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "starcoder",
                "refact", "command-r", "falcon", "llama-spm", "phi-3",
                # Without .inp files; the first two have the pre-tokenizer "default".
                "gpt-neox", "aquila", "mpt", "baichuan")
ADD_SPECIAL, PARSE_SPECIAL = 1, 2


def compile_llama_tokenize(peers):
    binaries, llama = peers / "lb" / "bin", peers / "src" / "vendor" / "llama.cpp"
    program = binaries / "kvern-llama-tokenize"
    if not program.exists() or program.stat().st_mtime < SOURCE.stat().st_mtime:
        command = ["g++", "-std=c++17", "-O2", SOURCE, "-o", program]
        command += [f"-I{llama / 'include'}", f"-I{llama / 'ggml' / 'include'}"]
        command += [f"-L{binaries}", f"-Wl,-rpath,{binaries}", "-lllama", "-lggml", "-lggml-base"]
        subprocess.run(command, check=True)
    return program


def run(program, model, *options, stdin=b""):
    result = subprocess.run([program, model, *options], input=stdin, capture_output=True)
    if result.returncode != 0:
        sys.exit(f"{program} {model}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout.decode().split("\n")[:-1]


def records(texts):
    return b"".join(struct.pack("<BI", flags, len(text)) + text for flags, text in texts)


def check_golden(ours, model):
    """The .inp and .out files beside a vocabulary: (number of texts, list of failures)."""
    if not Path(f"{model}.inp").exists():
        return 0, []
    texts = Path(f"{model}.inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    expected = Path(f"{model}.out").read_text().split("\n")
    lines = run(ours, model, stdin=records((0, text) for text in texts))
    wrong = [f"{text!r}: {line}, expected {want.strip()}"
             for text, line, want in zip(texts, lines, expected) if line != want.strip()]
    return len(texts), wrong


def check_vocab(ours, llama, model):
    """Every token's bytes and roles: (special texts, list of failures).

    Tokens that the alphabet of byte-level BPE cannot spell have no bytes in llama.cpp, which
    renders a diagnostic; Kvern renders their text.
    """
    got, want = run(ours, model, "--vocab"), run(llama, model, "--vocab")
    diagnostic = "[UNK_BYTE_".encode().hex()
    wrong = [f"token {i}: {a}, expected {b}" for i, (a, b) in enumerate(zip(got, want))
             if a != b and not b.startswith(diagnostic)]
    if len(got) != len(want):
        wrong.append(f"{len(got)} tokens, expected {len(want)}")
    hidden = [bytes.fromhex(line.split(" ")[0]) for line in got if line.endswith(" 1")]
    return hidden, wrong


def check_strings(ours, llama, model, texts):
    """Generated strings: (number that llama.cpp refuses, list of failures)."""
    stdin = records(texts)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        got, want = pool.map(lambda program: run(program, model, stdin=stdin), (ours, llama))
    if not len(got) == len(want) == len(texts):
        sys.exit(f"{model}: {len(texts)} texts, {len(got)} and {len(want)} answers")
    wrong = [f"{text!r} (flags {flags}): {a}, expected {b}"
             for (flags, text), a, b in zip(texts, got, want) if a != b and b != "refused"]
    return want.count("refused"), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peers", type=Path)
    parser.add_argument("tokenize_lines", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--strings", type=int, default=105_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--only", choices=VOCABULARIES)
    args = parser.parse_args()
    ours, llama = args.tokenize_lines.resolve(), compile_llama_tokenize(args.peers.resolve())
    vocabularies = args.peers / "src" / "vendor" / "llama.cpp" / "models"
    print(f"seed {args.seed}, {args.strings} strings per vocabulary")
    print(f"{'vocabulary':<16}{'golden':>8}{'strings':>9}{'refused':>9}{'wrong':>7}{'seconds':>9}")
    num_wrong = 0
    for name in VOCABULARIES if args.only is None else (args.only,):
        start = time.monotonic()
        model = args.model if name == "smollm" else vocabularies / f"ggml-vocab-{name}.gguf"
        num_golden, wrong = check_golden(ours, model)
        specials, more = check_vocab(ours, llama, model)
        wrong += more
        rng = random.Random(f"{args.seed} {name}")
        texts = [(rng.choice((0, ADD_SPECIAL, PARSE_SPECIAL)), text)
                 for text in unicode_strings.generate(rng, args.strings, specials)]
        num_refused, more = check_strings(ours, llama, model, texts)
        wrong += more
        print(f"{name:<16}{num_golden:>8}{len(texts):>9}{num_refused:>9}{len(wrong):>7}"
              f"{time.monotonic() - start:>9.1f}", flush=True)
        for line in wrong[:5]:
            print(f"  {line}")
        num_wrong += len(wrong)
    sys.exit(num_wrong > 0)


if __name__ == "__main__":
    main()
