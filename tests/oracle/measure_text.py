"""How far Kvern's next-token distributions of a text are from the float32 oracle's, by KV type.

    measure_text.py MODEL TEXT --kvern PROGRAM [--kv f16,q8r] [--chunk 512] [--chunks 8]

As `kvern score` and `kvern bench kv` do, the text is cut into chunks that start afresh, and the
second half of each is measured, at the same positions for every type. The oracle (forward.py) has
the model's weights as they dequantise, float32 activations, and K and V as computed. ± is the
standard error of a mean, from the means of the chunks. The last column is the KL in parts of the
first type's, which rounds the same activations: what is left is the type's own.
"""

import argparse
import subprocess
import sys

import numpy as np

import compare
import forward
import metrics


def read_chunks(program, model_path, text_path, size, count):
    command = [program, "tokenize", "-m", model_path, "-f", text_path, "--ids"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(f"{program} tokenize failed: {done.stderr.strip()}")
    tokens = [int(token) for token in done.stdout.strip("[]\n ").split(",")]
    starts = range(0, len(tokens) - size + 1, size)[:count]
    if not starts:
        raise ValueError(f"{text_path}: fewer than {size} tokens: lower --chunk")
    return [tokens[start : start + size] for start in starts]


def measure(oracle_logits, logits, next_tokens):
    """Of one chunk: mean KL, share of same top tokens, mean negative log likelihood."""
    return (
        metrics.kl_divergence(oracle_logits, logits).mean(),
        metrics.same_top(oracle_logits, logits).mean(),
        metrics.negative_log_likelihood(logits, next_tokens).mean(),
    )


def show(name, rows, base):
    """`rows` are of measure(), one a chunk, all of equally many positions; so are the base's."""
    kl, top, loss = np.array(rows).T
    error = kl.std(ddof=1) / np.sqrt(len(kl)) if len(kl) > 1 else 0
    line = f"{name:>6}  KL {kl.mean():.3e} ± {error:.0e}  same top {100 * top.mean():.2f} %"
    line += f"  perplexity {np.exp(loss.mean()):.4f}"
    if base is not None:
        difference = kl - np.array(base)[:, 0]
        spread = difference.std(ddof=1) / np.sqrt(len(kl)) if len(kl) > 1 else 0
        line += f"  {kl.mean() / np.array(base)[:, 0].mean():.3f}"
        line += f"  (difference {difference.mean():+.1e} ± {spread:.0e})"
    print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description="Kvern's distance from the oracle on a text")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--kvern", required=True, help="kvern program to run")
    parser.add_argument("--kv", default="f16,q8r", help="types of K and V, separated by commas")
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--chunks", type=int, help="at most so many; default: the whole text")
    args = parser.parse_args()
    kinds, half = args.kv.split(","), args.chunk // 2
    results = {name: [] for name in ["oracle", *kinds]}
    try:
        chunks = read_chunks(args.kvern, args.model, args.text, args.chunk, args.chunks)
        oracle = forward.Model(args.model)
        for tokens in chunks:
            exact, following = oracle.logits(tokens, half)[:-1], tokens[half + 1 :]
            results["oracle"].append(measure(exact, exact, following))
            for kv in kinds:
                logits = compare.run_kvern(args.kvern, args.model, tokens, kv)
                logits = logits.reshape(len(tokens), -1)[half:-1]
                results[kv].append(measure(exact, logits, following))
            print(f"{len(results['oracle'])} of {len(chunks)} chunks", file=sys.stderr, flush=True)
    except (OSError, ValueError) as error:
        sys.exit(f"measure_text.py: {error}")
    print(f"{len(chunks)} chunks of {args.chunk} tokens, {len(chunks) * (half - 1)} positions")
    for name, rows in results.items():
        show(name, rows, results[kinds[0]] if name in kinds[1:] else None)


if __name__ == "__main__":
    main()
