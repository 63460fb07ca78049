"""kvern bench: what it prints for programs, and how it refuses. No speed is asserted."""

import csv
import io
import json
import tempfile
from pathlib import Path

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


class Batched(harness.CommandTest):
    PROMPT = 300  # two whole KV chunks, and a last block that is not full

    def bench(self, *flags):
        out = self.output_of("bench", "batched", "-m", model(), "-npp", self.PROMPT, "-ntg", "5",
                             "-npl", "1,3", "-t", "2", "-o", "jsonl", *flags)
        return [json.loads(line) for line in out.splitlines()]

    def test_json_has_the_fields_of_llama_batched_bench(self):
        for row, count in zip(self.bench("-b", "64"), (1, 3), strict=True):
            self.assertEqual((row["pp"], row["tg"], row["pl"]), (self.PROMPT, 5, count))
            self.assertEqual((row["n_batch"], row["n_threads"], row["is_pp_shared"]), (64, 2, 0))
            self.assertEqual(row["n_kv"], count * (self.PROMPT + 5))
            self.assertGreaterEqual(row["n_kv_max"], row["n_kv"])
            self.assertAlmostEqual(row["t"], row["t_pp"] + row["t_tg"])
            self.assertAlmostEqual(row["speed_pp"] * row["t_pp"], count * self.PROMPT)
            self.assertAlmostEqual(row["speed_tg"] * row["t_tg"], count * 5)
            self.assertAlmostEqual(row["speed"] * row["t"], row["n_kv"])

    def test_a_shared_prefix_is_held_once(self):
        private, shared = self.bench(), self.bench("-pps")
        self.assertEqual([row["is_pp_shared"] for row in shared], [1, 1])
        self.assertEqual([row["n_kv"] for row in shared], [self.PROMPT + 5, self.PROMPT + 15])
        block = private[0]["kv_bytes"] // 20
        self.assertEqual([row["kv_bytes"] // block for row in private], [20, 60])
        # Of the 20 blocks, 18 are full of the prompt, and each sequence has two of its own.
        self.assertEqual([row["kv_bytes"] // block for row in shared], [20, 18 + 3 * 2])

    def test_markdown(self):
        lines = self.output_of("bench", "batched", "-m", model(), "-npp", "16", "-ntg", "2", "-npl",
                               "2").splitlines()
        self.assertEqual(
            [cell.strip() for cell in lines[0].strip("|").split("|")],
            ["PP", "TG", "B", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s", "T s", "S t/s",
             "KV held"],
        )
        self.assertEqual([cell.strip() for cell in lines[2].split("|")[1:5]], ["16", "2", "2", "36"])

    def test_bad_flags(self):
        for flags, message in (
            (("-npp", "0"), "-npp: '0' is no number in 1"),
            (("-ntg", "x"), "-ntg: 'x' is no number"),
            (("-npl", "9", "-b", "8"), "-npl: 9 sequences do not fit into a step of 8 tokens: raise -b"),
            (("-npp", "1000000", "-npl", "4096", "-b", "4096"), "MiB of memory are available"),
            (("-t", "0"), "-t: 0 is outside 1"),
        ):
            with self.subTest(flags):
                code = FAILURE if "memory" in message else USAGE
                self.assert_fails(code, message, "bench", "batched", "-m", model(), *flags)
        self.assert_fails(USAGE, "belongs behind 'bench batched'", "bench", "-r", "1", "batched")


class Kernels(harness.CommandTest):
    def test_json(self):
        out = self.output_of("bench", "kernels", "--only", "gemv Q4_1", "-t", "1,2", "-r", "1",
                             "-o", "json")
        rows = {(row["kernel"], row["type"], row["n_threads"]): row for row in json.loads(out)}
        limits = [("limit", limit) for limit in ("read", "dot", "fma")]
        self.assertEqual(
            list(rows), [(*row, threads) for row in limits + [("gemv", "Q4_1")] for threads in (1, 2)]
        )
        for threads in (1, 2):
            gemv, read = rows["gemv", "Q4_1", threads], rows["limit", "read", threads]
            self.assertEqual((gemv["unit"], gemv["limit"]), ("GB/s", "read"))
            self.assertAlmostEqual(gemv["percent_of_limit"], 100 * gemv["value"] / read["value"])

    def test_bad_flags(self):
        for flags, message in (
            (("--only", "frob"), "--only: no kernel has 'frob' in its name"),
            (("-t", "0"), "-t: '0' is no number in 1"),
            (("-r", "0"), "-r: 0 repetitions"),
            (("--isa", "mmx"), "unknown instruction set 'mmx'"),
        ):
            with self.subTest(flags):
                self.assert_fails(USAGE, message, "bench", "kernels", *flags)


class Serve(harness.CommandTest):
    SMALL = ("--prefix", "40", "--tail", "9", "--new", "4", "--check", "--json")

    def serve(self, *flags):
        return json.loads(self.output_of("bench", "serve", *flags, "-m", model()))

    def test_a_shared_prefix_is_computed_once(self):
        report = self.serve("shared-prefix", "--requests", "3", *self.SMALL)
        self.assertEqual(report["requests"]["done"], 3)
        self.assertEqual(report["prompt_tokens"], 3 * 49)
        self.assertEqual(report["output_tokens"], 3 * 4)
        self.assertEqual(report["answers_checked"], 3)
        prompts = report["prompts"]
        found = sum(prompts[place] for place in ("ram", "tier", "in_flight", "partial"))
        self.assertEqual(found + sum(prompts["miss"].values()), 3 * 49)
        self.assertGreaterEqual(found, 2 * 32)  # whole blocks
        self.assertEqual(report["kv"]["one_answer_violations"], 0)

    def test_conversations_and_agents_find_their_history(self):
        for workload in (("chat", "--requests", "2", "--turns", "2", "--think-ms", "0"),
                         ("agents", "--requests", "1", "--turns", "2", "--branches", "2")):
            with self.subTest(workload[0]):
                report = self.serve(*workload, *self.SMALL)
                self.assertEqual(report["requests"]["failed"], 0)
                self.assertGreater(report["prompts"]["ram"], 0)

    def test_the_plan_says_what_a_prompt_quotes_and_waits_for(self):
        file = Path(self.enterContext(tempfile.TemporaryDirectory())) / "plan.jsonl"
        self.serve("chat", "--requests", "1", "--turns", "2", "--prompts", str(file), *self.SMALL)
        shared, first, second = map(json.loads, file.read_text().splitlines())
        self.assertEqual((shared["warm_up"], len(shared["prompt"][0])), (True, 40))
        self.assertEqual([len(piece) for piece in first["prompt"]], [40, 9])
        self.assertEqual(second["prompt"][:3], [*first["prompt"], {"reply_of": 0}])
        self.assertEqual(second["after"], [{"request": 0, "tokens": 4}])
        self.assertEqual(second["delay_us"], 200_000)

    def test_without_the_cache_everything_is_computed(self):
        report = self.serve("documents", "--requests", "2", "--turns", "2", "--compare", "off",
                            *self.SMALL)
        without = report["without_cache"]
        self.assertEqual(without["engine"]["prefilled_tokens"], 4 * 49)
        self.assertEqual(without["prompts"]["miss"]["policy_off"], 4 * 49)
        self.assertGreater(report["speedup"], 0)

    def test_bad_flags(self):
        for flags, message in (
            (("frob",), "unknown workload 'frob': use one of shared-prefix"),
            (("chat", "--branches", "2"), "--branches: the workload chat has no such thing"),
            (("chat", "--turns", "0"), "--turns: 0 is not from 1"),
            (("trace",), "--trace: the workload trace needs a file"),
            (("chat", "--rate", "0"), "--rate: give more than 0"),
            (("chat", "--rate", "1", "--concurrency", "1"), "--concurrency and --rate"),
            (("chat", "--compare", "on"), "--compare: 'on' is not off"),
        ):
            with self.subTest(flags):
                self.assert_fails(USAGE, message, "bench", "serve", *flags, "-m", model())


if __name__ == "__main__":
    harness.main()
