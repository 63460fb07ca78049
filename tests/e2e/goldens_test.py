"""Kvern's logits of every tiny model are as close to exact arithmetic as llama.cpp's golden ones,
with K and V in 8 bits too."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "oracle"))
import compare  # noqa: E402
from make_models import SPECS  # noqa: E402

GOLDENS = harness.ROOT / "tests" / "goldens"


class Goldens(harness.CommandTest):
    def test_logits(self):
        for spec in SPECS:
            path = harness.tiny_models / f"{spec.name}.gguf"
            golden = compare.load_golden(GOLDENS / f"{spec.name}.json", path)
            for kv in compare.LIMITS:
                with self.subTest(model=spec.name, kv=kv):
                    logits = compare.run_kvern(harness.program, path, golden["tokens"], kv)
                    self.assertEqual(compare.check(logits, golden["tokens"], path, golden, kv), [])

    def test_measure_text(self):
        """The distance from the oracle on a text: nearly none in f32, some in 8 bits."""
        tool = harness.ROOT / "tests" / "oracle" / "measure_text.py"
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "text.txt"
            text.write_text("The heat of the hearth is in the other room. " * 9)
            command = [sys.executable, "-B", tool, harness.tiny_models / "tiny-llama-mha-f32.gguf", text,
                       "--kvern", harness.program, "--kv", "f32,q8r", "--chunk", "64", "--chunks", "2"]
            done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[0], "2 chunks of 64 tokens, 62 positions")
        kl = {name: float(value) for name, value in re.findall(r"(\w+)  KL (\S+)", done.stdout)}
        self.assertEqual(list(kl), ["oracle", "f32", "q8r"])
        self.assertEqual(kl["oracle"], 0)
        self.assertLess(kl["f32"], 1e-6)
        self.assertGreater(kl["q8r"], 1e-4)


if __name__ == "__main__":
    harness.main()
