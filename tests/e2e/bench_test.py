"""kvern bench: what it prints for programs, and how it refuses. Speeds are only looked at for sense."""

import csv
import io
import json

import harness

USAGE, FAILURE = 2, 1


def model():
    return harness.tiny_models / "tiny-llama-gqa-q4_1.gguf"


class Speed(harness.CommandTest):
    SMALL = ("-p", "24,40", "-n", "3", "-pg", "8,2", "-d", "0,20", "-r", "2", "-t", "1,2")

    def bench(self, *flags):
        return self.output_of("bench", "-m", model(), *flags)

    def test_json_has_the_fields_of_llama_bench(self):
        rows = json.loads(self.bench(*self.SMALL, "-o", "json"))
        tests = [(24, 0), (40, 0), (0, 3), (8, 2)]
        expected = [(*test, depth, threads)
                    for threads in (1, 2) for depth in (0, 20) for test in tests]
        self.assertEqual(
            [(r["n_prompt"], r["n_gen"], r["n_depth"], r["n_threads"]) for r in rows], expected
        )
        for row in rows:
            self.assertEqual(row["model_filename"], str(model()))
            self.assertEqual(row["n_batch"], 512)
            self.assertEqual((row["type_k"], row["type_v"]), ("f16", "f16"))
            self.assertRegex(row["test_time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertEqual(len(row["samples_ns"]), 2)
            self.assertEqual(len(row["samples_ts"]), 2)
            tokens = row["n_prompt"] + row["n_gen"]
            for ns, speed in zip(row["samples_ns"], row["samples_ts"]):
                self.assertAlmostEqual(speed, tokens * 1e9 / ns, delta=1e-6 * speed)
            self.assertAlmostEqual(row["avg_ns"], sum(row["samples_ns"]) / 2, delta=1)
            self.assertGreater(row["peak_rss_bytes"], row["model_size"])

    def test_kv_bytes_are_those_of_the_tokens(self):
        rows = json.loads(self.bench("-p", "16,17", "-n", "0", "-d", "0,16", "-r", "1", "-o", "json"))
        block = rows[0]["kv_bytes"]
        self.assertEqual([r["kv_bytes"] // block for r in rows], [1, 2, 2, 3])

    def test_every_format_says_the_same(self):
        flags = ("-p", "16", "-n", "2", "-r", "1", "-ctk", "f32")
        lines = [json.loads(line) for line in self.bench(*flags, "-o", "jsonl").splitlines()]
        rows = list(csv.DictReader(io.StringIO(self.bench(*flags, "-o", "csv"))))
        self.assertEqual([line["n_prompt"] for line in lines], [16, 0])
        self.assertEqual([row["n_prompt"] for row in rows], ["16", "0"])
        self.assertEqual(set(lines[0]) - set(rows[0]), {"samples_ns", "samples_ts"})
        table = self.bench(*flags).splitlines()
        self.assertEqual(
            [cell.strip() for cell in table[0].strip("|").split("|")],
            ["model", "size", "params", "threads", "type_k", "memory", "test", "t/s"],
        )
        self.assertEqual([row.split("|")[-3].strip() for row in table[2:]], ["pp16", "tg2"])

    def test_strategies(self):
        for strategy in ("paged", "dynamic", "static", "none"):
            with self.subTest(strategy):
                rows = json.loads(self.bench("-p", "16", "-n", "2", "-r", "1", "--kv", strategy,
                                             "-o", "json"))
                self.assertEqual([row["kv"] for row in rows], [strategy] * 2)

    def test_bad_flags(self):
        for flags, message in (
            (("-p", "x"), "-p: 'x' is no number in 0"),
            (("-n", "1,,2"), "-n: '' is no number"),
            (("-d", "-1"), "-d: '-1' is no number"),
            (("-t", "0"), "-t: '0' is no number in 1 … 256"),
            (("-pg", "3"), "-pg: '3' is no pair of numbers"),
            (("-r", "0"), "-r: 0 repetitions measure nothing"),
            (("-o", "sql"), "-o: unknown format 'sql': use one of md, json, jsonl, csv"),
            (("-p", "0", "-n", "0"), "give -p, -n or -pg"),
            (("-ctv", "q9"), "-ctv: unknown type 'q9'"),
            (("--isa", "mmx"), "unknown instruction set 'mmx'"),
            (("--frob",), "see: kvern bench --help"),
        ):
            with self.subTest(flags):
                self.assert_fails(USAGE, message, "bench", "-m", model(), *flags)
        self.assert_fails(FAILURE, "/no/such.gguf: cannot open", "bench", "-m", "/no/such.gguf")


if __name__ == "__main__":
    harness.main()
