"""How far one set of logits is from another. Rows are positions; all is computed in float64."""

import numpy as np


def log_softmax(logits):
    logits = logits.astype(np.float64)
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def kl_divergence(reference, logits):
    """KL(reference ‖ logits) of each row, in nats. Both are logits."""
    p, q = log_softmax(reference), log_softmax(logits)
    return (np.exp(p) * (p - q)).sum(-1)


def same_top(reference, logits):
    """Whether each row's largest logit is the same token's."""
    return reference.argmax(-1) == logits.argmax(-1)


def negative_log_likelihood(logits, tokens):
    """Of each row's token, in nats."""
    return -log_softmax(logits)[np.arange(len(tokens)), tokens]


def rms(difference):
    return float(np.sqrt(np.square(difference, dtype=np.float64).mean()))


def distance(reference, logits):
    """The figures by which goldens and tests judge closeness, over all rows."""
    return {
        "mean_kl": float(f"{kl_divergence(reference, logits).mean():.4g}"),
        "rms": float(f"{rms(logits - reference):.4g}"),
        "max_abs": float(f"{np.abs(logits - reference).max():.4g}"),
        "same_top": float(f"{same_top(reference, logits).mean():.4g}"),
    }


def describe(figures):
    return (
        f"KL {figures['mean_kl']:.2e} rms {figures['rms']:.2e} max {figures['max_abs']:.2e}"
        f" same top {100 * figures['same_top']:.1f} %"
    )
