"""How close are Kvern and llama.cpp to exact arithmetic on a real model? Prints both, and judges.

    fidelity.py PEERS_DIR KVERN TEXT_DIR MODEL [--cache DIR] [--threads N] [--chunks N]

The text is the files of TEXT_DIR (*.txt) concatenated in name order, tokenised by llama.cpp, and cut
as llama-perplexity cuts it: whole chunks of 512 tokens, each run alone from position 0, the rest
dropped; where the model wants a BOS token it replaces each chunk's first. Scored are the
distributions after tokens 256 … 510 of each chunk, those that predict tokens 257 … 511.

The reference is the float32 numpy oracle over the dequantised weights. llama.cpp runs with its
defaults (f16 KV, flash attention where it chooses to), Kvern with its own (f16 KV). For each: mean
KL(reference ‖ engine), the rate at which both prefer the same token, and perplexity.

Kvern passes when its mean KL is at most 1.05 times llama.cpp's and its same-top rate at most 0.7
points below. Exits 1 when it does not, 2 when the measurement cannot be made. The reference logits
(about 50 MB a chunk) are kept under DIR (default: folder `fidelity` beside KVERN) for later runs.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import forward  # noqa: E402
import metrics  # noqa: E402
from llama_logits import LlamaLogits  # noqa: E402

CHUNK = 512
FIRST = CHUNK // 2
KL_FACTOR = 1.05
SAME_TOP_POINTS = 0.7


def read_chunks(llama, model_path, text_dir):
    files = sorted(Path(text_dir).glob("*.txt"))
    if not files:
        raise ValueError(f"{text_dir}: holds no .txt files")
    with tempfile.NamedTemporaryFile(suffix=".txt") as text:
        text.write(b"".join(file.read_bytes() for file in files))
        text.flush()
        tokens = llama.tokenize(model_path, text.name)
    chunks = [tokens[i : i + CHUNK] for i in range(0, len(tokens) - CHUNK + 1, CHUNK)]
    if not chunks:
        raise ValueError(f"{text_dir}: {len(tokens)} tokens are less than one chunk of {CHUNK}")
    return chunks


def start_with_bos(chunks, bos):
    """llama.cpp's tokeniser puts BOS first where the model wants it; then every chunk has it."""
    if chunks[0][0] != bos:
        return chunks
    return [[bos] + chunk[1:] for chunk in chunks]


class Reference:
    """The oracle's logits of a chunk's scored positions, cached in files named by their inputs."""

    def __init__(self, model_path, folder):
        self.model = forward.Model(model_path)  # dequantises nothing until it must
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.digest = hashlib.sha256(Path(model_path).read_bytes())
        self.digest.update(Path(forward.__file__).read_bytes())

    def logits(self, chunk):
        digest = self.digest.copy()
        digest.update(np.array(chunk, "<i4").tobytes())
        path = self.folder / f"{digest.hexdigest()[:32]}.npy"
        if path.exists():
            return np.load(path)
        logits = self.model.logits(chunk, FIRST)[:-1]
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.save(file, logits)
        part.replace(path)
        return logits


def kvern_logits(program, model_path, chunk, vocab, threads):
    """Kvern's logits of one chunk's scored positions."""
    with tempfile.TemporaryDirectory() as folder:
        ids, out = Path(folder) / "ids.txt", Path(folder) / "logits.f32"
        ids.write_text(" ".join(map(str, chunk)) + "\n")
        command = [
            program,
            "score",
            "-m",
            model_path,
            "--ids",
            ids,
            "--logits-out",
            out,
            "-t",
            str(threads),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(f"{program} score failed: {done.stderr.strip()}")
        logits = np.fromfile(out, "<f4")
    if logits.size != CHUNK * vocab:
        raise ValueError(f"{program} score wrote {logits.size} logits, not {CHUNK} x {vocab}")
    return logits.reshape(CHUNK, vocab)[FIRST:-1]


class Tally:
    """Figures of one engine, gathered chunk by chunk."""

    def __init__(self):
        self.kl, self.same, self.nll = [], [], []

    def add(self, reference, logits, targets):
        self.kl.append(metrics.kl_divergence(reference, logits))
        self.same.append(metrics.same_top(reference, logits))
        self.nll.append(metrics.negative_log_likelihood(logits, targets))

    @property
    def mean_kl(self):
        return float(np.concatenate(self.kl).mean())

    @property
    def same_top(self):
        """In per cent."""
        return 100 * float(np.concatenate(self.same).mean())

    def line(self, name):
        def error(values):
            return values.std() / np.sqrt(values.size - 1)

        kl, same, nll = (
            np.concatenate(values).astype(np.float64) for values in (self.kl, self.same, self.nll)
        )
        return (
            f"{name:10} mean KL {kl.mean():.6f} ± {error(kl):.6f}"
            f"   same top {100 * same.mean():.2f} ± {100 * error(same):.2f} %"
            f"   perplexity {np.exp(nll.mean()):.4f}"
        )


def measure(args):
    """Each engine's Tally by name, and the oracle's perplexity."""
    llama = LlamaLogits(args.peers_dir)
    reference = Reference(args.model, args.cache or Path(args.kvern).resolve().parent / "fidelity")
    vocab = reference.model.vocab
    chunks = read_chunks(llama, args.model, args.text_dir)
    chunks = start_with_bos(chunks, reference.model.config.bos)[: args.chunks]
    tallies = {"llama.cpp": Tally(), "kvern": Tally()}
    exact_nll = []
    for number, chunk in enumerate(chunks, 1):
        started = time.monotonic()
        exact = reference.logits(chunk)
        logits = {
            "llama.cpp": llama(args.model, [chunk], vocab, FIRST, threads=args.threads)[:-1],
            "kvern": kvern_logits(args.kvern, args.model, chunk, vocab, args.threads),
        }
        targets = chunk[FIRST + 1 :]
        exact_nll.append(metrics.negative_log_likelihood(exact, targets))
        for name, tally in tallies.items():
            tally.add(exact, logits[name], targets)
        print(
            f"chunk {number}/{len(chunks)}: KL {tallies['llama.cpp'].kl[-1].mean():.6f} (llama.cpp)"
            f" {tallies['kvern'].kl[-1].mean():.6f} (kvern), {time.monotonic() - started:.1f} s",
            file=sys.stderr,
            flush=True,
        )
    return tallies, float(np.exp(np.concatenate(exact_nll).mean()))


def judge(theirs, ours):
    """A line that says how Kvern compares, and whether that passes."""
    ratio = ours.mean_kl / theirs.mean_kl
    points = ours.same_top - theirs.same_top
    passes = ratio <= KL_FACTOR and points >= -SAME_TOP_POINTS
    line = (
        f"{'PASS' if passes else 'FAIL'}: mean KL is {ratio:.3f} times llama.cpp's (at most"
        f" {KL_FACTOR}), same top {points:+.2f} points (at least -{SAME_TOP_POINTS})"
    )
    return line, passes


def main():
    parser = argparse.ArgumentParser(
        description="fidelity of Kvern and llama.cpp to a float32 oracle"
    )
    parser.add_argument("peers_dir", help="folder of a llama.cpp build")
    parser.add_argument("kvern", help="kvern program")
    parser.add_argument("text_dir", help="folder of .txt files")
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--cache", help="folder for the reference logits")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--chunks", type=int, help="measure only the first so many chunks")
    args = parser.parse_args()
    try:
        tallies, exact_perplexity = measure(args)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"fidelity.py: {error}", file=sys.stderr)
        sys.exit(2)
    print(
        f"{len(tallies['kvern'].kl)} chunks of {CHUNK} tokens, {CHUNK - FIRST - 1} scored positions"
        f" each; the oracle's perplexity is {exact_perplexity:.4f}"
    )
    for name, tally in tallies.items():
        print(tally.line(name))
    line, passes = judge(tallies["llama.cpp"], tallies["kvern"])
    print(line)
    sys.exit(0 if passes else 1)


if __name__ == "__main__":
    main()
