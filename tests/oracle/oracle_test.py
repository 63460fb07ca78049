"""Tests of the oracles themselves: that the made models are those of the goldens, that numpy and
llama.cpp agree on them, and that compare.py notices what is wrong.

    oracle_test.py MODELS_DIR      (what make_models.py wrote)
"""

import contextlib
import io
import sys
import unittest
from pathlib import Path

import one_thread  # noqa: F401, before numpy
import numpy as np

import compare
import forward
import kv_types
import metrics
from make_models import SPECS, Type

GOLDENS = Path(__file__).resolve().parents[1] / "goldens"
MODELS = Path()  # set from the command line


def load(spec):
    """(path, golden) of a model; raises when the golden was made from another file."""
    path = MODELS / f"{spec.name}.gguf"
    return path, compare.load_golden(GOLDENS / f"{spec.name}.json", path)


def check(logits, path, golden, kv="f32"):
    with contextlib.redirect_stdout(io.StringIO()):
        return compare.check(logits.ravel(), golden["tokens"], path, golden, kv)


class OracleTest(unittest.TestCase):
    def test_every_model_has_a_golden_and_every_golden_a_model(self):
        self.assertEqual(
            {path.stem for path in GOLDENS.glob("*.json")}, {spec.name for spec in SPECS}
        )

    def test_numpy_and_llama_cpp_agree(self):
        """To float32 rounding for float32 weights; else by what llama.cpp loses on activations."""
        limits = {Type.F32: 1e-4, Type.F16: 1e-2, Type.BF16: 1e-1}
        for spec in SPECS:
            path, golden = load(spec)
            logits = forward.Model(path, np.float64).logits(golden["tokens"])[golden["positions"]]
            with self.subTest(spec.name):
                self.assertLess(
                    metrics.rms(logits - golden["logits"]), limits.get(spec.weights, 0.5)
                )

    def test_logits_are_lively(self):
        for spec in SPECS:
            _, golden = load(spec)
            with self.subTest(spec.name):
                self.assertGreater(golden["logits"].std(), 2)
                self.assertLess(golden["logits"].std(), 5)

    def test_compare_accepts_the_float32_oracle(self):
        for spec in SPECS:
            path, golden = load(spec)
            with self.subTest(spec.name):
                logits = forward.Model(path).logits(golden["tokens"])
                self.assertEqual(check(logits, path, golden), [])

    def test_compare_rejects_what_is_wrong(self):
        for spec in SPECS:
            path, golden = load(spec)
            model = forward.Model(path)
            model.config.rope_base *= 1.1
            logits = model.logits(golden["tokens"])
            with self.subTest(spec.name):
                self.assertNotEqual(check(logits, path, golden), [])
                self.assertNotEqual(check(logits[1:], path, golden), [])
                logits[3, 5] = np.nan
                self.assertEqual(check(logits, path, golden), ["logits are not all finite"])

    def test_rotation_keeps_scalar_products_and_undoes_itself(self):
        random = np.random.default_rng(1)
        for head_dim in (1, 7, 20, 64, 80, 96, 112, 128):
            with self.subTest(head_dim):
                a, b = random.standard_normal((2, 5, 3, head_dim))
                products = (kv_types.rotate(a) * kv_types.rotate(b)).sum(-1)
                np.testing.assert_allclose(products, (a * b).sum(-1), atol=1e-12)
                np.testing.assert_allclose(kv_types.rotate(kv_types.rotate(a)), a, atol=1e-12)
        np.testing.assert_allclose(kv_types.rotate(np.eye(4))[1], [0.5, -0.5, 0.5, -0.5])

    def test_rows_are_rounded_to_multiples_of_a_scale_in_f16(self):
        rows = np.array([[[0.0, 0.0, 0.0]], [[127.0, 63.4, -0.6]], [[-3.0, 1.0, 2.0]]])
        stored = kv_types.stored_rows(rows, "q8r")
        np.testing.assert_array_equal(stored[:2], [[[0, 0, 0]], [[127, 63, -1]]])
        scale = np.float64(np.float16(3 / 127))
        np.testing.assert_array_equal(stored[2], [[-127 * scale, 42 * scale, 85 * scale]])

    def test_compare_tells_q8r_from_f32(self):
        """Where weights are floats: else rounded activations hide it."""
        for spec in SPECS:
            if spec.weights not in (Type.F32, Type.F16, Type.BF16):
                continue
            path, golden = load(spec)
            with self.subTest(spec.name):
                for kv, other in (("q8r", "f32"), ("f32", "q8r")):
                    logits = forward.Model(path, np.float32, kv).logits(golden["tokens"])
                    self.assertEqual(check(logits, path, golden, kv), [])
                    self.assertNotEqual(check(logits, path, golden, other), [])


if __name__ == "__main__":
    MODELS = Path(sys.argv.pop(1))
    unittest.main()
