"""kvern sim: what it must hold on the recorded trace, and how it fails."""

import json
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import harness

USAGE, FAILURE = 2, 1
CONVERSATIONS = harness.ROOT / "tests" / "data" / "traces" / "azure_llm_2023_conv.csv"


class Fragmentation(harness.CommandTest):
    def replay(self, *flags):
        """The document, and its allocators by name."""
        document = json.loads(self.output_of("sim", "fragmentation", "--json", *flags))
        return document, {row["allocator"]: row for row in document["allocators"]}

    def assert_consistent(self, document, rows):
        self.assertEqual(list(rows), ["static", "dynamic", "paged"])
        for name, row in rows.items():
            with self.subTest(name):
                shares = [row[f"{part}_bytes"] for part in ("used", "internal", "external", "free")]
                self.assertAlmostEqual(sum(shares) / document["budget_bytes"], 1, places=9)
                self.assertEqual(
                    row["completed"] + row["too_long"] + row["never_fit"], document["requests"])
        paged = rows["paged"]
        for nothing in ("external_bytes", "peak_external_bytes", "mean_fragmentation",
                        "refusals_by_holes", "bytes_copied"):
            self.assertEqual(paged[nothing], 0, nothing)

    def test_paging_wastes_less_than_one_percent_of_the_conversations(self):
        document, rows = self.replay("--trace", CONVERSATIONS)
        self.assert_consistent(document, rows)
        self.assertEqual(document["requests"], 19366)
        self.assertEqual(document["block_tokens"], 16)
        for row in rows.values():
            self.assertEqual(row["completed"], 19366)
        self.assertLessEqual(rows["paged"]["waste_ratio"], 0.01)
        self.assertGreater(rows["static"]["waste_ratio"], 5)
        self.assertGreater(rows["dynamic"]["waste_ratio"], 0.3)
        self.assertGreater(rows["dynamic"]["external_bytes"], 0.1 * document["budget_bytes"])
        self.assertGreater(rows["dynamic"]["bytes_copied"], 0)
        self.assertGreater(rows["paged"]["mean_held"], 1.4 * rows["dynamic"]["mean_held"])
        self.assertGreater(rows["paged"]["mean_held"], 10 * rows["static"]["mean_held"])
        self.assertLess(rows["paged"]["steps"], rows["dynamic"]["steps"])

    def test_in_time_nobody_waits_for_blocks(self):
        document, rows = self.replay("--trace", CONVERSATIONS, "--step-ms", 50, "--requests", 4000)
        self.assert_consistent(document, rows)
        self.assertEqual(rows["paged"]["refusals"], 0)
        self.assertLessEqual(rows["paged"]["waste_ratio"], 0.01)
        self.assertGreater(rows["static"]["refusals"], 0)

    def test_smaller_blocks_waste_less(self):
        ratios = []
        for block_tokens in (1, 16, 128):
            document, rows = self.replay(
                "--requests", 1000, "--budget", "8GiB", "--block-tokens", block_tokens)
            self.assert_consistent(document, rows)
            ratios.append(rows["paged"]["waste_ratio"])
        self.assertEqual(ratios[0], 0)
        self.assertEqual(ratios, sorted(ratios))

    def test_the_same_flags_give_the_same_output(self):
        flags = ("sim", "fragmentation", "--requests", 500, "--fit", "best", "--seed")
        self.assertEqual(self.output_of(*flags, 7), self.output_of(*flags, 7))
        self.assertNotEqual(self.output_of(*flags, 7), self.output_of(*flags, 8))

    def test_table_and_chart(self):
        with tempfile.TemporaryDirectory() as folder:
            chart = Path(folder) / "chart.svg"
            out = self.output_of(
                "sim", "fragmentation", "--requests", 300, "--max-tokens", 4096, "--chart", chart)
            self.assertIn("300 requests of synthetic", out)
            for name in ("static", "dynamic", "paged"):
                self.assertRegex(out, rf"\n\| {name} +\|")
                self.assertRegex(out, rf"\n{name}: left out [1-9]\d* requests beyond --max-tokens")
            texts = [e.text for e in ElementTree.parse(chart).iter() if e.tag.endswith("text")]
            self.assertTrue({"static", "dynamic", "paged", "internal waste"} <= set(texts))

    def test_wrong_flags(self):
        for message, *flags in (
            ("--budget: '24GB' is not a size", "--budget", "24GB"),
            ("--budget: 1MiB are 0 blocks of 2097152 bytes", "--budget", "1MiB"),
            ("--budget: 9TiB are", "--budget", "9TiB", "--token-bytes", "64"),
            ("--token-bytes: 0 is not from 1", "--token-bytes", "0"),
            ("--token-bytes: 3 make blocks of 48 bytes, not a multiple of 64", "--token-bytes", "3"),
            ("--block-tokens: 0 is not from 1", "--block-tokens", "0"),
            ("--step-ms", "--step-ms", "0"),
            ("--fit: 'worst' is not first or best", "--fit", "worst"),
            ("--requests: 0 is not from 1", "--requests", "0"),
        ):
            with self.subTest(message):
                self.assert_fails(USAGE, message, "sim", "fragmentation", *flags)
        self.assert_fails(USAGE, "kvern sim --help", "sim")
        self.assert_fails(FAILURE, "/no/such.svg", "sim", "fragmentation", "--requests", 9,
                          "--chart", "/no/such.svg")

    def test_traces_that_are_none(self):
        self.assert_fails(FAILURE, "/no/such.csv", "sim", "fragmentation", "--trace", "/no/such.csv")
        for text, message in (
            ("", ":1: the header is"),
            ("arrival_ms,context_tokens,generated_tokens\n1,2,x\n", ':2: "x" is not a number'),
            ("TIMESTAMP,ContextTokens,GeneratedTokens\n7,1,2\n", ':2: "7" is not a time like'),
        ):
            with self.subTest(message), tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
                file.write(text)
                file.flush()
                self.assert_fails(FAILURE, file.name + message, "sim", "fragmentation",
                                  "--trace", file.name)


if __name__ == "__main__":
    harness.main()
