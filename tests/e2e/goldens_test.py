"""Kvern's logits of every tiny model are as close to exact arithmetic as llama.cpp's golden ones."""

import sys

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
            for kv in golden["distance"]:
                with self.subTest(model=spec.name, kv=kv):
                    logits = compare.run_kvern(harness.program, path, golden["tokens"], kv)
                    self.assertEqual(compare.check(logits, golden["tokens"], path, golden, kv), [])


if __name__ == "__main__":
    harness.main()
