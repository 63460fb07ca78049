"""What is measured: one table, which the command line, the report and the chart share."""

from dataclasses import dataclass, replace

from bench.process import BenchError


@dataclass(frozen=True)
class Row:
    """One line of the table. As llama-bench has it, `prompt` tokens are read or `new` tokens are
    decoded, one after another, behind `depth` tokens that are not timed. With `sequences` above 1
    it is llama-batched-bench's decode: every sequence gets `new` tokens behind its own `prompt`
    tokens, or all behind the same ones. `target_…` is the ratio aimed at. `weights` names a
    random-weight model of bench/make_models.py, or "" for the default model."""

    name: str
    title: str
    prompt: int = 0
    new: int = 0
    depth: int = 0
    sequences: int = 1
    is_shared: bool = False
    threads: int = 1
    target_llama: float | None = None
    target_openvino: float | None = None
    is_quick: bool = False
    has_openvino: bool = True
    weights: str = ""
    timeout_s: int = 300


# fmt: off
ALL_THREADS = [
    Row("tg128", "decode, 1 sequence", new=128, target_llama=2.1, target_openvino=2.5,
        is_quick=True),
    Row("tg64@d4096", "decode at depth 4,096", new=64, depth=4096, target_llama=3.0, timeout_s=600),
    Row("pp2048@d4096", "prefill 2,048 at depth 4,096", prompt=2048, depth=4096, target_llama=3.0,
        timeout_s=600),
    Row("pp512", "prefill 512", prompt=512, target_llama=6.0, target_openvino=1.2, is_quick=True),
    Row("pp2048", "prefill 2,048", prompt=2048, target_llama=4.5, target_openvino=1.0),
    Row("tg32x8", "decode, 8 sequences, private 512-token contexts", prompt=512, new=32,
        sequences=8, target_llama=4.5, is_quick=True),
    Row("tg16x32", "decode, 32 sequences sharing one 2,048-token prefix", prompt=2048, new=16,
        sequences=32, is_shared=True, target_llama=6.5, has_openvino=False),
]
ONE_THREAD = [
    Row("tg128-t1", "decode, 1 sequence, one thread", new=128, target_llama=2.3,
        target_openvino=2.2),
    Row("pp512-t1", "prefill 512, one thread", prompt=512, target_llama=6.0, target_openvino=1.1),
]
WEIGHTS = ("Q4_K", "Q6_K", "Q8_0", "BF16")
AGAINST = ("pp512", "tg128", "tg64@d2048", "tg16x32")
# fmt: on


def weight_rows(weights):
    """Prefill and decode of the random-weight model of that type. No peer but llama.cpp reads all
    of them, and for BF16 the aim is a share of the machine's limits, not a ratio."""
    target = None if weights == "BF16" else 1.5
    common = {"has_openvino": False, "weights": weights, "target_llama": target}
    return [
        Row(f"{weights}-pp512", f"prefill 512, {weights} weights", prompt=512, **common),
        Row(f"{weights}-tg64", f"decode, {weights} weights", new=64, **common),
    ]


def comparison_rows(threads, with_weights=False):
    """All rows of the comparison with the peers, in the table's order."""
    rows = [replace(row, threads=threads) for row in ALL_THREADS]
    if threads != 1:
        rows += ONE_THREAD
    if with_weights:
        rows += [replace(row, threads=threads) for kind in WEIGHTS for row in weight_rows(kind)]
    return rows


def against_rows(threads):
    """The rows that a commit is held to."""
    deep = Row("tg64@d2048", "decode at depth 2,048", new=64, depth=2048)
    rows = {row.name: row for row in [*ALL_THREADS, deep]}
    return [replace(rows[name], threads=threads) for name in AGAINST]


def select(rows, names):
    """The named rows, in the table's order."""
    known = [row.name for row in rows]
    for name in names:
        if name not in known:
            raise BenchError(f"no row is called {name}; rows: {' '.join(known)}")
    return [row for row in rows if row.name in names]
