"""Compares Kvern's logits of one model with the numpy oracle and with llama.cpp's golden logits.

    compare.py MODEL GOLDEN --logits FILE [--tokens 1,2,3] [--kv f16]
    compare.py MODEL GOLDEN --kvern PROGRAM [--tokens 1,2,3] [--kv q8r]

FILE holds raw little-endian f32 logits [tokens][vocab], as `kvern score --logits-out` writes
them; with --kvern the comparison runs that command itself. The tokens are the golden's unless
given; the golden rows are compared only for its own. --kv names the KV type that Kvern ran with.

Kvern passes when it is about as close to the float64 oracle as llama.cpp is with that KV type,
which the golden records: both round activations to 8 bits for quantised weights, so neither can be
exact. llama.cpp has nothing like q8r. There the oracle rounds what q8r rounds (kv_types.py), the
yardstick is llama.cpp with f16, and the golden rows are left out. Exits 1 when it is further off, 2 when there is nothing to compare.
"""

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import one_thread  # noqa: F401, before numpy
import numpy as np

import forward
import kv_types
import metrics

# Kvern may be this many times as far from the oracle as llama.cpp is, plus a floor for float32
# arithmetic in another order. Measured between llama.cpp's own variants, the mean KL of a tiny
# model moves by up to a fifth, the RMS difference by a twentieth. With K and V in 8 bits on both
# sides the little that they differ by rounds some numbers otherwise: up to 2.1 times the KL and 1.4
# times the RMS of f16 in quantised models, 5.5e-5 and 1.1e-2 in others, where q8r itself is 1e-3 to
# 7e-3 from f32.
FLOAT_LIMITS = {"mean_kl": (1.5, 1e-8), "rms": (1.25, 1e-4)}
LIMITS = {
    "f32": FLOAT_LIMITS,
    "f16": FLOAT_LIMITS,
    "bf16": FLOAT_LIMITS,
    "q8r": {"mean_kl": (3, 1e-4), "rms": (1.6, 1.5e-2)},
}
RMS_FLOOR = FLOAT_LIMITS["rms"][1]
# Two engines on either side of the oracle are up to the sum of both distances apart, and three rows
# are a small sample.
GOLDEN_FACTOR = 2.5


def load_golden(path, model_path):
    golden = json.loads(Path(path).read_text())
    if hashlib.sha256(Path(model_path).read_bytes()).hexdigest() != golden["sha256"]:
        raise ValueError(f"{model_path}: not the model that {path} was made from; make both again")
    golden["tokens"] = [int(token) for token in golden["tokens"].split()]
    golden["logits"] = np.stack(
        [np.frombuffer(base64.b64decode(row), "<f4") for row in golden["logits"]]
    )
    return golden


def run_kvern(program, model_path, tokens, kv):
    """Raw logits of `kvern score`."""
    with tempfile.TemporaryDirectory() as folder:
        ids, out = Path(folder) / "ids.txt", Path(folder) / "logits.f32"
        ids.write_text(" ".join(map(str, tokens)) + "\n")
        command = [program, "score", "-m", model_path, "--ids", ids, "--logits-out", out]
        command += ["-ctk", kv, "-ctv", kv]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(f"{program} score failed: {done.stderr.strip()}")
        return np.fromfile(out, "<f4")


def check(logits, tokens, model_path, golden, kv):
    """Prints the figures; returns what is wrong, a list of messages."""
    oracle = forward.Model(model_path, np.float64, kv).logits(tokens)
    if logits.size != oracle.size:
        return [f"{logits.size} logits, not {oracle.shape[0]} x {oracle.shape[1]}"]
    logits = logits.reshape(oracle.shape)
    if not np.isfinite(logits).all():
        return ["logits are not all finite"]

    ours = metrics.distance(oracle, logits)
    theirs = golden["distance"]["f16" if kv in kv_types.LIMITS else kv]
    limits = {name: factor * theirs[name] + floor for name, (factor, floor) in LIMITS[kv].items()}
    print(f"{golden['model']} kv {kv}: {metrics.describe(ours)}")
    print(f"  llama.cpp: {metrics.describe(theirs)}")
    wrong = [
        f"{name} {ours[name]:.3g} from the oracle exceeds {limit:.3g}"
        for name, limit in limits.items()
        if ours[name] > limit
    ]

    if tokens == golden["tokens"] and kv not in kv_types.LIMITS:
        at = golden["positions"]
        difference = logits[at] - golden["logits"]
        apart = metrics.rms(difference)
        scale = max(theirs["rms"], metrics.rms(golden["logits"] - oracle[at]))
        limit = GOLDEN_FACTOR * scale + RMS_FLOOR
        print(f"  golden rows: rms {apart:.2e} max {np.abs(difference).max():.2e}")
        if apart > limit:
            wrong.append(f"rms {apart:.3g} from llama.cpp's golden logits exceeds {limit:.3g}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description="compares Kvern's logits with the oracles'")
    parser.add_argument("model")
    parser.add_argument("golden")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--logits", help="raw f32 file that kvern score wrote")
    source.add_argument("--kvern", help="kvern program to run")
    parser.add_argument("--tokens", help="comma-separated ids; default: the golden's")
    parser.add_argument("--kv", choices=LIMITS, default="f16")
    args = parser.parse_args()
    try:
        golden = load_golden(args.golden, args.model)
        tokens = (
            [int(token) for token in args.tokens.split(",")] if args.tokens else golden["tokens"]
        )
        if args.kvern:
            logits = run_kvern(args.kvern, args.model, tokens, args.kv)
        else:
            logits = np.fromfile(args.logits, "<f4")
    except (OSError, ValueError) as error:
        print(f"compare.py: {error}", file=sys.stderr)
        sys.exit(2)
    wrong = check(logits, tokens, args.model, golden, args.kv)
    for message in wrong:
        print(f"compare.py: {golden['model']}: {message}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
