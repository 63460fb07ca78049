"""What a reader must know of the machine to trust or to repeat the numbers."""

import os
import platform
from pathlib import Path

# The instruction sets that decide how fast these programs can be.
ISA_FLAGS = (
    "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
    "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16",
)
BUSY_LOAD = 0.5


def parse_cpuinfo(text):
    """(model name, set of flags) of the first processor."""
    fields = {}
    for line in text.split("\n\n", 1)[0].splitlines():
        key, _, value = line.partition(":")
        fields[key.strip()] = value.strip()
    return fields.get("model name", "unknown"), set(fields.get("flags", "").split())


def describe(load_before):
    """Rows of the settings section: (what, value)."""
    model, flags = parse_cpuinfo(Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return [
        ("CPU", f"{model}, {os.cpu_count()} cores"),
        ("instruction sets", " ".join(flag for flag in ISA_FLAGS if flag in flags)),
        ("memory", f"{memory / 2**30:.1f} GiB"),
        ("kernel", f"{platform.system()} {platform.release()}"),
        ("load before the run", f"{load_before:.2f}" + (" (busy)" if is_busy(load_before) else "")),
    ]


def load_average():
    """Processes that wanted a core, on average over the last minute."""
    return os.getloadavg()[0]


def is_busy(load):
    return load > BUSY_LOAD
