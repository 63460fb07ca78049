"""What the integer types of K and V round, in numpy: the reference for Kvern's q8r and q4r.

Written from docs/numerics.md, without the engine's layout, and in the dtype of what it is given:
rows, queries and their rotation. The weights of V, which the engine rounds to 15 bits, stay exact.
"""

import numpy as np

LIMITS = {"q8r": 127, "q4r": 7}
QUERY_LIMIT = 127


def rotate(x):
    """Hadamard blocks of the powers of two that make up the last axis, the largest first. It undoes
    itself."""
    blocks, first = [], 0
    for bit in reversed(range(x.shape[-1].bit_length())):
        size = 1 << bit
        if not x.shape[-1] & size:
            continue
        block = x[..., first : first + size]
        stride = size // 2
        while stride:
            pairs = block.reshape(*x.shape[:-1], size // (2 * stride), 2, stride)
            a, b = pairs[..., 0, :], pairs[..., 1, :]
            block = np.stack([a + b, a - b], -2).reshape(*x.shape[:-1], size)
            stride //= 2
        blocks.append(block * x.dtype.type(size**-0.5))
        first += size
    return np.concatenate(blocks, -1)


def round_rows(x, scale, limit):
    """Each row as whole multiples of its scale, at most `limit` of them."""
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    return np.clip(np.rint(x * inverse), -limit, limit) * scale


def stored_rows(x, kind):
    limit = LIMITS[kind]
    scale = np.abs(x).max(-1, keepdims=True) / x.dtype.type(limit)
    scale = np.minimum(scale, 65504)  # the largest half
    return round_rows(x, scale.astype(np.float16).astype(x.dtype), limit)


def stored(q, k, v, kind):
    """(q, k, v), each [tokens, heads, head_dim], as attention multiplies them under a type; rotated
    q and k have the scalar products of the plain ones."""
    if kind not in LIMITS:
        return q, k, v
    q = rotate(q)
    scale = np.abs(q).max(-1, keepdims=True) / q.dtype.type(QUERY_LIMIT)
    return round_rows(q, scale, QUERY_LIMIT), stored_rows(rotate(k), kind), stored_rows(v, kind)
