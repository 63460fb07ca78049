"""kvern batch: every request answered once, whatever stops it, and the same each time."""

import json
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import harness

USAGE, FAILURE = 2, 1
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SYSTEM = "You are a patient teacher of geography who answers in one short sentence. " * 6


def line(custom_id, url, body):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body}) + "\n"


def chat(i):
    return line(f"chat-{i}", CHAT, {
        "messages": [{"role": "system", "content": SYSTEM},
                     {"role": "user", "content": f"Name river number {i} of Europe."}],
        "seed": i, "max_completion_tokens": 12, "temperature": 0.7 * (i % 2),
        "n": 1 + (i % 5 == 0), "logprobs": i % 3 == 0, "top_logprobs": 2 * (i % 3 == 0)})


def completion(i):
    return line(f"text-{i}", COMPLETIONS, {
        "prompt": SYSTEM[:200] + f"Chapter {i}:", "seed": i, "max_tokens": 10, "n": 1,
        "best_of": 1 + i % 3, "logprobs": 1, "stop": ["."]})


INPUT = "".join(chat(i) + completion(i) for i in range(12)) + "not JSON\n" + line(
    "refused", COMPLETIONS, {"prompt": "Hi", "temperature": "hot"})
NUM_REQUESTS = 26


class Batch(harness.CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.input = Path(folder.name) / "in.jsonl"
        self.output = Path(folder.name) / "out.jsonl"
        self.input.write_text(INPUT)

    def command(self, *flags):
        return ["batch", self.input, self.output, "-m", harness.default_model, "-c", "1024", *flags]

    def replies(self):
        """What each request was answered, without what differs from run to run."""
        replies = {}
        for text in self.output.read_text().splitlines():
            reply = json.loads(text)
            key = reply["custom_id"] or reply["error"]["line"]
            self.assertNotIn(key, replies)
            body = (reply["response"] or {}).get("body", {})
            body.pop("id", None)
            body.pop("created", None)
            body.get("usage", {}).pop("prompt_tokens_details", None)
            replies[key] = ((reply["response"] or {}).get("status_code"), body, reply["error"])
        return replies

    def stop_halfway(self, how):
        """Ends a run once a few requests are answered. Its exit code, and standard error."""
        process = subprocess.Popen(
            [harness.program, *map(str, self.command("--max-running", 2))],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")
        deadline = time.monotonic() + 300
        while not self.output.exists() or self.output.read_bytes().count(b"\n") < 6:
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        process.send_signal(how)
        _, err = process.communicate(timeout=300)
        return process.returncode, err

    def test_what_was_stopped_goes_on_to_the_same_replies(self):
        summary = self.output_of(*self.command())
        self.assertRegex(summary, rf"requests +{NUM_REQUESTS} answered in .*, 2 failed\n")
        self.assertGreater(int(re.search(r"(\d+) reused", summary).group(1)), 12 * 64)
        expected = self.replies()
        self.assertEqual(len(expected), NUM_REQUESTS)
        self.assert_well_formed(expected)

        for how in (signal.SIGKILL, signal.SIGINT):
            with self.subTest(how.name):
                self.output.unlink()
                code, err = self.stop_halfway(how)
                if how == signal.SIGINT:
                    self.assertEqual(code, FAILURE, err)
                    self.assertRegex(err, r"kvern: interrupted with \d+ of 26 requests answered")
                whole_lines = self.output.read_bytes().rpartition(b"\n")[0]
                self.assertLess(whole_lines.count(b"\n") + 1, NUM_REQUESTS)
                self.assertIn("were answered before", self.output_of(*self.command()))
                self.assertTrue(self.output.read_bytes().startswith(whole_lines))
                self.assertEqual(self.replies(), expected)

        before = self.output.read_bytes()
        self.assertIn("26 were answered before", self.output_of(*self.command()))
        self.assertEqual(self.output.read_bytes(), before)

    def assert_well_formed(self, replies):
        status, body, error = replies["chat-0"]
        self.assertEqual((status, error), (200, None))
        self.assertEqual(len(body["choices"]), 2)
        for choice in body["choices"]:
            self.assertIn(choice["finish_reason"], ("stop", "length"))
            self.assertEqual(len(choice["logprobs"]["content"][0]["top_logprobs"]), 2)
        self.assertEqual(body["usage"]["total_tokens"],
                         body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"])
        self.assertRegex(body["system_fingerprint"], r"\Ab-kvern-[0-9a-f]{12}\Z")
        self.assertIn("kvern_receipt", body)
        self.assertNotIn(".", replies["text-1"][1]["choices"][0]["text"])
        self.assertEqual(replies["refused"][0], 400)
        self.assertEqual(replies["refused"][1]["error"]["param"], "temperature")
        self.assertEqual(replies[25][2]["code"], "invalid_json")

    def test_speculation_and_policies_change_no_reply(self):
        self.output_of(*self.command())
        expected = self.replies()
        self.output.unlink()
        self.output_of(*self.command("--speculation", "ngram", "--policy", "lpm", "-b", "64",
                                     "--max-running", 5, "--kv-tokens", 2048))
        self.assertEqual(self.replies(), expected)

    def test_what_cannot_be_is_said_before_anything_is_loaded(self):
        self.assert_fails(USAGE, "name files", "batch", "-", self.output)
        self.assert_fails(USAGE, "name files", "batch", self.input, "-")
        self.assert_fails(FAILURE, "no such file", "batch", self.input.parent / "no", self.output)
        self.assert_fails(USAGE, "is the input too", "batch", self.input, self.input)
        self.assert_fails(USAGE, "--max-running: 0", *self.command("--max-running", 0))
        self.assert_fails(USAGE, "unknown 'fastest'", *self.command("--policy", "fastest"))
        self.output.write_text(INPUT)
        self.assert_fails(USAGE, "line 1 is not of a batch's output", *self.command())
        self.output.unlink()
        self.input.write_text(chat(1) + chat(1))
        self.assert_fails(USAGE, "line 2: custom_id 'chat-1' is that of line 1", *self.command())


if __name__ == "__main__":
    harness.main()
