"""Makes tests/goldens: llama.cpp's logits of the tiny models, and its distance from the oracle.

    make_goldens.py PEERS_DIR MODELS_DIR [OUTDIR]

MODELS_DIR is what make_models.py wrote; PEERS_DIR is a llama.cpp build (see llama_logits.py). One
JSON file per model:

    sha256     of the model file, so that a golden never meets another model
    tokens     the fixed ids that were run as one sequence, separated by spaces
    positions  whose logits are kept
    logits     for each of them, base64 of little-endian f32 [vocab]; f32 KV, no flash attention
    distance   of llama.cpp from the float64 oracle over all positions, for each KV type: the
               yardstick for Kvern, because llama.cpp rounds activations too
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

import one_thread  # noqa: F401, before numpy
import numpy as np

import forward
import metrics
from llama_logits import LlamaLogits
from make_models import SPECS, random_bytes

TOKENS = 150  # more than one KV chunk of 128
POSITIONS = [17, 128, 149]
KV_TYPES = ["f32", "f16", "bf16"]


def golden_tokens(spec):
    words = random_bytes(spec.name + "/golden", 4 * TOKENS).view("<u4").astype(np.uint64)
    return [int(word * spec.vocab >> 32) for word in words]


def make_golden(llama, spec, model_path):
    tokens = golden_tokens(spec)
    oracle = forward.Model(model_path, np.float64).logits(tokens)
    logits = {kv: llama(model_path, [tokens], spec.vocab, kv=kv, flash="off") for kv in KV_TYPES}
    rows = logits["f32"][POSITIONS].astype("<f4")
    return {
        "model": spec.name,
        "sha256": hashlib.sha256(model_path.read_bytes()).hexdigest(),
        "llama_cpp": llama.version,
        "tokens": " ".join(map(str, tokens)),
        "positions": POSITIONS,
        "logits": [base64.b64encode(row.tobytes()).decode() for row in rows],
        "distance": {kv: metrics.distance(oracle, logits[kv]) for kv in KV_TYPES},
    }


def main(argv):
    if len(argv) not in (2, 3):
        sys.exit("usage: make_goldens.py PEERS_DIR MODELS_DIR [OUTDIR]")
    llama = LlamaLogits(argv[0])
    out = Path(argv[2]) if len(argv) == 3 else Path(__file__).resolve().parents[1] / "goldens"
    for spec in SPECS:
        golden = make_golden(llama, spec, Path(argv[1]) / f"{spec.name}.gguf")
        (out / f"{spec.name}.json").write_text(json.dumps(golden, indent=2) + "\n")
        for kv, figures in golden["distance"].items():
            print(f"{spec.name:24} kv {kv:4}: {metrics.describe(figures)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
