"""kvern bench kv: exact bytes, the shape of what it prints, and figures of quality that must hold on
any machine. No speed is asserted."""

import json
import tempfile
from pathlib import Path

import harness

USAGE, FAILURE = 2, 1
LAYERS, KV_HEADS, HEAD_DIM = 4, 2, 32  # of the model
PAIRS = ["f16", "f32", "q8r", "q4r", "q8r/f16"]
TEXT = "The heat of the hearth is in the room, and the other room is cold. " * 12


def model():
    return harness.tiny_models / "tiny-llama-gqa-q4_1.gguf"


def plane_bytes(kind):
    """Of 16 tokens, one layer and head: docs/kv-dtypes.md."""
    scales = 32
    return {"f32": 64 * HEAD_DIM, "f16": 32 * HEAD_DIM, "bf16": 32 * HEAD_DIM,
            "q8r": 16 * HEAD_DIM + scales, "q4r": 8 * HEAD_DIM + scales}[kind]


def token_bytes(name):
    k, _, v = name.partition("/")
    page = plane_bytes(k) + plane_bytes(v or k)
    return (page + 63) // 64 * 64 * LAYERS * KV_HEADS // 16


class BenchKv(harness.CommandTest):
    SMALL = ("-r", "1", "-p", "20", "-n", "3", "--sequences", "3", "--prefix", "128", "-t", "2",
             "-b", "64")

    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT)

    def bench(self, *flags, small=SMALL):
        """(the table, the document)."""
        file = self.folder / "figures.json"
        table = self.output_of("bench", "kv", "-m", model(), *small, "--json", file, *flags)
        return table, json.loads(file.read_text())

    def test_bytes_and_capacity_are_exact(self):
        _, figures = self.bench("--only", "memory", "--types", ",".join(PAIRS), "--memory", "3MiB")
        self.assertEqual([row["type"] for row in figures["types"]], PAIRS)
        for row in figures["types"]:
            bytes_per_token = token_bytes(row["type"])
            self.assertEqual(row["bytes_per_token"], bytes_per_token, row)
            self.assertEqual(row["capacity_tokens"], (3 << 20) // (16 * bytes_per_token) * 16)

    def test_the_bytes_are_those_that_a_run_reports(self):
        _, figures = self.bench("--only", "memory", "--types", "q8_0")
        reply = json.loads(self.output_of("run", "-m", model(), "-p", "the", "-n", "1", "--json",
                                          "-ctk", "q8r", "-ctv", "q8r"))
        self.assertEqual(figures["types"][1]["bytes_per_token"], reply["kv_bytes_per_token"])

    def test_every_case_has_a_row_and_a_figure_for_every_type(self):
        svg = self.folder / "chart.svg"
        table, figures = self.bench("--types", "q8r,q8r/f16", "--depths", "0,300,9999", "--svg", svg)
        lines = table.splitlines()
        self.assertEqual([cell.strip() for cell in lines[0].strip("|").split("|")],
                         ["", "f16", "q8r", "q8r/f16"])
        depths = [0, 300, 2048 - 20]  # the deepest that the context has room for
        self.assertEqual(
            [(case["case"], case["depth"]) for case in figures["cases"]],
            [("attention_decode", 8192), ("attention_shared", 128), ("attention_prefill_512", 0),
             ("attention_prefill_2048", 0), ("store_k", 0), ("store_v", 0)]
            + [(kind, depth) for kind in ("decode", "prefill") for depth in depths]
            + [("decode_private", 128), ("decode_shared", 128)],
        )
        titles = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
        units = {"tokens_per_second": "t/s", "milliseconds": "ms", "nanoseconds": "ns"}
        for case in figures["cases"]:
            self.assertIn(f"{case['title']}, {units[case['unit']]}", titles)
            self.assertEqual([row["type"] for row in case["results"]], ["f16", "q8r", "q8r/f16"])
            self.assertEqual(case["results"][0]["speed_of_f16"], 1)
            for row in case["results"]:
                self.assertEqual(len(row["seconds"]), 1)
                self.assertGreater(row["value"], 0)
        self.assertNotIn("quality", figures)
        self.assertIn("Quality was not measured: give a text by -f FILE.", table)
        self.assertIn("</svg>", svg.read_text())

    def test_quality(self):
        table, figures = self.bench("--only", "quality", "-f", self.text, "--chunk", "64",
                                    "--types", "f32,q8r,q4r")
        quality = figures["quality"]
        by_type = {row["type"]: row for row in quality["results"]}
        self.assertEqual(list(by_type), ["f16", "f32", "q8r", "q4r"])
        self.assertEqual(quality["positions"], quality["chunks"] * 31)
        for own, reference in (("f16", "from_f16"), ("f32", "from_f32")):
            self.assertEqual(
                by_type[own][reference], {"mean_kl": 0, "standard_error": 0, "same_top": 1}
            )
        kl = {name: row["from_f32"]["mean_kl"] for name, row in by_type.items()}
        self.assertGreater(kl["q4r"], 10 * kl["q8r"])
        self.assertGreater(kl["q8r"], 0)
        for name, row in by_type.items():
            score = json.loads(self.output_of("score", "-m", model(), "-f", self.text, "--chunk", "64",
                                              "--json", "-ctk", name, "-ctv", name))
            self.assertEqual(score["scored_tokens"], quality["positions"])
            self.assertAlmostEqual(row["perplexity"] / score["perplexity"], 1, delta=1e-5)
        self.assertIn("no independent implementation", " ".join(table.split()))

    def test_quality_does_not_depend_on_how_it_is_computed(self):
        flags = ("--only", "quality", "-f", self.text, "--types", "q8r")
        _, one = self.bench(*flags, small=("-t", "1", "-b", "7", "--sequences", "1"))
        _, other = self.bench(*flags, small=("-t", "2", "--isa", "scalar"))
        self.assertEqual(one["quality"], other["quality"])

    def test_bad_flags(self):
        for flags, message in (
            (("--types", "q9"), "--types: unknown type 'q9': use one of f32, f16, bf16, q8r, q4r"),
            (("--types", "q8r/"), "--types: unknown type ''"),
            (("--only", "speed"), "--only: 'speed' is none of memory, attention"),
            (("--only", "quality"), "quality is measured on a text: give one by -f"),
            (("--only", "memory", "--svg", "x.svg"), "--svg: draws decoding by depth"),
            (("--memory", "1G"), "--memory: '1G' is not a size"),
            (("--depths", "x"), "--depths: 'x' is no number in 0"),
            (("--prefix", "100"), "--prefix: 100 is outside 128"),
            (("--prefix", "200"), "--prefix: 200 is no multiple of 128"),
            ((), "--prefix: 2048 tokens and 32 new ones exceed the model's context"),
            (("--sequences", "65", "-b", "64"), "--sequences: 65 is outside 1 … 64"),
            (("-p", "4000"), "-p, -n: 4000 tokens exceed the model's context of 2048"),
            (("-n", "0"), "-n: 0 is outside 1"),
            (("-r", "0"), "-r: 0 is outside 1"),
            (("-t", "0"), "-t: 0 is outside 1"),
            (("--chunk", "1"), "--chunk: 1 is outside 2"),
            (("--isa", "mmx"), "unknown instruction set 'mmx'"),
        ):
            with self.subTest(flags):
                self.assert_fails(USAGE, message, "bench", "kv", "-m", model(), *flags)
        self.assert_fails(FAILURE, "/no/such.txt", "bench", "kv", "-m", model(), "--only", "quality",
                          "-f", "/no/such.txt")
        self.assert_fails(USAGE, "belongs behind 'bench kv'", "bench", "-r", "1", "kv")


if __name__ == "__main__":
    harness.main()
