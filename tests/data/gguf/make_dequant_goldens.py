#!/usr/bin/env python3
"""Makes dequant_<type>.bin beside this script: what compute/quant_blocks_test.cc compares with.

A file is n blocks of the type, then the n * block_elements float32 that the gguf package (0.19)
decodes them to. Blocks are random bytes with every scale field set to a chosen half, so that zero,
subnormal, largest and infinite scales all occur.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

NUM_ELEMENTS = 1536
EDGE_HALVES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00]
# Byte offsets of the half-precision scales in a block.
SCALE_OFFSETS = {
    'F32': [], 'F16': [0], 'BF16': [],
    'Q4_0': [0], 'Q4_1': [0, 2], 'Q5_0': [0], 'Q5_1': [0, 2], 'Q8_0': [0],
    'Q4_K': [0, 2], 'Q5_K': [0, 2], 'Q6_K': [208],
}


def random_halves(random, count):
    """Mostly like real scales, one in four any finite pattern, edges first."""
    likely = (random.standard_normal(count) * 0.02).astype(np.float16).view(np.uint16)
    wild = random.integers(0, 0x7C00, count, dtype=np.uint16) | random.integers(0, 2, count, dtype=np.uint16) << 15
    halves = np.where(random.random(count) < 0.25, wild, likely).astype(np.uint16)
    halves[:len(EDGE_HALVES)] = EDGE_HALVES[:count]
    return halves


def make(name, scale_offsets):
    kind = GGMLQuantizationType[name]
    block_elements, block_bytes = GGML_QUANT_SIZES[kind]
    random = np.random.default_rng(int(kind))
    # Super-blocks are few: enough of them that every edge scale occurs.
    num_blocks = max(NUM_ELEMENTS // block_elements, 12)
    blocks = random.integers(0, 256, (num_blocks, block_bytes), dtype=np.uint8)
    for offset in scale_offsets:
        halves = random_halves(random, num_blocks)
        if offset != scale_offsets[0]:
            halves = np.roll(halves, 3)
        blocks[:, offset:offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    with np.errstate(all='ignore'):
        floats = quants.dequantize(blocks, kind).astype('<f4')
    path = pathlib.Path(__file__).parent / f'dequant_{name}.bin'
    path.write_bytes(blocks.tobytes() + floats.tobytes())


for name, scale_offsets in SCALE_OFFSETS.items():
    make(name, scale_offsets)
