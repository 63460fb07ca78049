"""No object that is compiled for more than the baseline instruction set defines a weak symbol.

    weak_symbols_test.py BUILD_DIR COMPILER

An inline function that stays out of line is a weak symbol, and of several copies the linker keeps
any: were it the AVX-512 one, every caller in the program would need AVX-512. So the objects of the
modules whose command lines have an -m option (the kernels of src/compute/isa) must export strong
symbols alone. Covers every build type, since kernels are optimised even for debugging;
sanitizer builds, which run on the machine that built them, are not tested.
"""

import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

build_dir = Path()
compiler = ""

SPECIAL_OPTION = re.compile(r"\s-m(?:arch|cpu|avx|sse|fma|f16c|bmi)\S*")


def weak_symbols(path):
    """Symbols that an object defines for the linker to choose among: weak functions, weak data and
    unique globals."""
    out = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True,
                         text=True).stdout
    return re.findall(r"^[0-9a-f]* [WVu] (.*)$", out, re.MULTILINE)


def special_objects():
    """Objects of the modules that are compiled with special instruction sets."""
    entries = json.loads((build_dir / "compile_commands.json").read_text())
    commands = [entry["command"] for entry in entries]
    outputs = [re.search(r" -o (\S+)", command)[1] for command in commands
               if SPECIAL_OPTION.search(command)]
    return [build_dir / output for output in outputs if re.search(r"/kvern(_\w+)?\.dir/", output)]


class WeakSymbols(unittest.TestCase):
    def test_kernels_define_none(self):
        objects = special_objects()
        names = {"/".join(path.parts[-2:]) for path in objects}
        expected = {f"{isa}/{kernel}.cc.o" for isa in ("avx2", "avx512")
                    for kernel in ("linear", "attention", "rows")} | {"avx2vnni/linear.cc.o",
                                                                          "amx/attention.cc.o"}
        self.assertLessEqual(expected, names)
        for path in objects:
            with self.subTest(path.relative_to(build_dir)):
                self.assertEqual(weak_symbols(path), [])

    def test_a_shared_inline_function_is_found(self):
        source = """
            inline int Twice(int x) { return 2 * x; }
            template <typename T> int seen = 0;
            int (*Function())(int) { ++seen<int>; return Twice; }
        """
        with tempfile.NamedTemporaryFile(suffix=".o") as out:
            subprocess.run([compiler, "-O2", "-mavx512f", "-std=c++20", "-xc++", "-c", "-", "-o",
                            out.name], input=source, text=True, check=True)
            self.assertEqual(sorted(weak_symbols(out.name)), ["Twice(int)", "seen<int>"])


if __name__ == "__main__":
    build_dir, compiler = Path(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
