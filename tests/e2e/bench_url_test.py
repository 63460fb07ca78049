"""kvern bench serve --url: a real server under a workload, and what is said where none answers."""

import json
import re
import socket
import tempfile
from pathlib import Path

import harness
from serving import Server

USAGE, FAILURE = 2, 1
SMALL = ("--prefix", "40", "--tail", "9", "--new", "4", "--json")


def model():
    return harness.tiny_models / "tiny-llama-gqa-q4_1.gguf"


class Url(harness.CommandTest):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--alias", "tiny", "--api-key", "k", model=model()))
        cls.flags = ("--url", f"http://127.0.0.1:{cls.server.port}", "--api-key", "k")

    def serve(self, *flags):
        return json.loads(self.output_of("bench", "serve", *flags, *self.flags))

    def test_a_shared_prefix_is_served_as_in_process(self):
        flags = ("shared-prefix", "--requests", "3", *SMALL)
        alone = json.loads(self.output_of("bench", "serve", *flags, "-m", model()))
        report = self.serve(*flags, "--check")
        self.assertRegex(report["server"], r"\Ahttp://127\.0\.0\.1:\d+, tiny\Z")
        self.assertEqual((report["requests"]["done"], report["failures"]), (3, {}))
        self.assertEqual(report["answers_checked"], 3)
        for key in ("prompt_tokens", "output_tokens"):
            self.assertEqual(report[key], alone[key], key)
        self.assertGreaterEqual(report["cached_tokens"], 2 * 32)  # whole blocks
        prompts = report["prompts"]
        found = sum(prompts[place] for place in ("ram", "tier", "in_flight", "partial"))
        self.assertEqual(found, report["cached_tokens"])
        self.assertEqual(found + sum(prompts["miss"].values()), 3 * 49)
        self.assertEqual(report["ttft_us"]["count"], 3)
        self.assertEqual(report["tpot_us"]["count"], 3)
        self.assertGreaterEqual(report["e2e_us"]["p50"], report["ttft_us"]["p50"])
        self.assertGreater(report["kv"]["budget_bytes"], report["kv"]["peak_bytes"]["active"])
        self.assertEqual(report["engine"]["prefilled_tokens"],
                         report["prompt_tokens"] - report["cached_tokens"])
        self.assertNotIn("blocks_merged", report["kv"])

    def test_conversations_quote_replies_by_their_ids(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        for workload in (("chat", "--requests", "2", "--turns", "3", "--think-ms", "0"),
                         ("agents", "--requests", "1", "--turns", "2", "--branches", "2")):
            with self.subTest(workload[0]):
                flags = (*workload, *SMALL, "--seed", "5")
                alone = json.loads(self.output_of("bench", "serve", *flags, "-m", model()))
                report = self.serve(*flags, "--svg", folder / "chart.svg", "--chart", "kv")
                self.assertEqual(report["requests"], alone["requests"])
                self.assertEqual(report["prompt_tokens"], alone["prompt_tokens"])
                self.assertEqual(report["output_tokens"], alone["output_tokens"])
                self.assertIn("reserved", (folder / "chart.svg").read_text())

    def test_the_table_names_the_server(self):
        text = self.output_of("bench", "serve", "documents", "--requests", "1", "--turns", "2",
                              *SMALL[:-1], "--seed", "6", "--compare", "off", *self.flags)
        for line in (r"server +http://127\.0\.0\.1:\d+, tiny", r"requests +2 done, 0 failed",
                     r"\n  TTFT +[\d.]+", r"prompts +98 tokens", r"KV memory", r"verdict",
                     r"with it [\d.]+ times the speed"):
            self.assertRegex(text, line)

    def test_streams_are_cancelled_as_planned(self):
        # They are longer than the context of a tiny model.
        with Server() as server:
            report = json.loads(self.output_of(
                "bench", "serve", "mixed-prefill", "--requests", "2", "--prefix", "20", "--tail", "5",
                "--prompt", "100", "--json", "--url", f"http://127.0.0.1:{server.port}"))
        (row,) = report["settings"]
        self.assertEqual(row["setting"], "as the server runs")
        self.assertGreater(row["prefill_mixed_tokens_per_second"], 0)

    def test_the_tokenizer_of_a_model_file(self):
        report = self.serve("shared-prefix", "--requests", "2", *SMALL, "--seed", "7", "-m", model())
        self.assertEqual(report["requests"]["done"], 2)

    def test_what_does_not_fit_is_counted_by_its_status(self):
        code, out, err = self.run_kvern("bench", "serve", "shared-prefix", "--requests", "2",
                                        "--prefix", "9000", "--tail", "9", "--new", "4", "--json",
                                        *self.flags)
        self.assertEqual(code, FAILURE)
        self.assertEqual(json.loads(out)["failures"], {"400": 2})
        self.assertIn("exceeds the available context size", err)

    def test_no_server_and_no_key(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            closed = f"http://127.0.0.1:{taken.getsockname()[1]}"
            self.assert_fails(FAILURE, f"{closed}/v1/models: cannot connect: Connection refused",
                              "bench", "serve", "--url", closed)
        url = self.flags[1]
        self.assert_fails(FAILURE, f"{url}/v1/models: 401 Unauthorized", "bench", "serve", "--url", url)
        self.assert_fails(FAILURE, f"{url}/not/here/v1/models: 404 Not Found", "bench", "serve",
                          "--url", f"{url}/not/here", "--api-key", "k")

    def test_bad_flags(self):
        for flags, message in (
            (("--url", "localhost:1"), "'localhost:1': does not begin with http://"),
            (("--url", "https://localhost:1"), "TLS is not offered"),
            (("--url", "http://localhost:1", "-t", "2"), "excludes --"),
            (("--url", "http://localhost:1", "--policy", "lpm"), "excludes --"),
            (("--api-key", "k"), "--api-key requires --url"),
            (("--skip", "32"), "--skip: there are 32 requests"),
            (("chat", "--skip", "1"), "--skip: later requests refer"),
        ):
            with self.subTest(flags):
                code, out, err = self.run_kvern("bench", "serve", *flags)
                self.assertIn(code, (USAGE, FAILURE))
                self.assertIn(message, err)
                self.assertEqual(len(re.findall(r"\n", err)), 1, err)


if __name__ == "__main__":
    harness.main()
