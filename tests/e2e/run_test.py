"""kvern run: one shot and in conversation, from the cache and without, and how it fails."""

import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import gguf

import harness

USAGE, FAILURE = 2, 1
QUESTION = "Name three rivers of Europe."


class OneShot(harness.CommandTest):
    def reply(self, *flags):
        return json.loads(self.output_of("run", "-m", harness.default_model, "-p", QUESTION,
                                         "-n", "12", "--json", *flags))

    def test_the_answer_does_not_depend_on_the_cache(self):
        cached = self.reply("--temp", "0")
        uncached = self.reply("--temp", "0", "--kv", "none")
        self.assertEqual(cached["tokens"], uncached["tokens"])
        self.assertEqual(cached["text"], uncached["text"])
        self.assertEqual(len(cached["tokens"]), cached["usage"]["completion_tokens"])
        # The prompt's rows and those of all tokens but the last, in whole blocks of 16.
        rows = cached["usage"]["prompt_tokens"] + len(cached["tokens"]) - 1
        self.assertEqual(cached["kv_bytes"], -(-rows // 16) * 16 * cached["kv_bytes_per_token"])

    def test_a_seed_decides_the_answer(self):
        first = self.reply("--temp", "1.5", "--seed", "7")
        self.assertEqual(first["seed"], 7)
        self.assertEqual(first["tokens"], self.reply("--temp", "1.5", "--seed", "7")["tokens"])
        drawn = self.reply("--temp", "1.5")
        again = self.reply("--temp", "1.5", "--seed", str(drawn["seed"]))
        self.assertEqual(drawn["tokens"], again["tokens"])

    def test_text_comes_from_standard_input_and_statistics_go_to_standard_error(self):
        code, out, err = self.run_kvern("run", "-m", harness.default_model, "-n", "4", "--temp", "0",
                                        text=QUESTION)
        self.assertEqual(code, 0, err)
        self.assertEqual(out, self.output_of("run", "-m", harness.default_model, "-n", "4", "--temp",
                                             "0", "-p", QUESTION))
        self.assertRegex(err, r"prefill \d+ tokens, [\d.]+ t/s; decode 4 tokens, .*KV cache [\d.]+ \w+")

    def test_names_of_llama_cpp_say_what_they_mean_here(self):
        q8r = "q8_0 is stored as q8r: 8 bits, K rotated, a scale for each token and head\n"
        q4r = "q4_0 is stored as q4r: 4 bits, "
        for k, v, notes in (("q8_0", "q8_0", [q8r]), ("q8_0", "q4_0", [q8r, q4r]),
                            ("f16", "q8_0", [q8r]), ("q8r", "q8r", []), ("f16", "f16", [])):
            with self.subTest(k=k, v=v):
                code, out, err = self.run_kvern("run", "-m", harness.default_model, "-p", QUESTION,
                                                "-n", "1", "--temp", "0", "--json", "-ctk", k, "-ctv", v)
                self.assertEqual(code, 0, err)
                json.loads(out)
                self.assertEqual(err.count(" is stored as "), len(notes))
                for note in notes:
                    self.assertIn(note, err)

    def test_trace_follows_the_cache(self):
        _, _, err = self.run_kvern("run", "-m", harness.default_model, "-p", QUESTION, "-n", "3",
                                   "--trace")
        for event in ("allocate", "bulk write", "append", "read", "free"):
            self.assertIn(event, err)


class Errors(harness.CommandTest):
    def assert_refused(self, message, *flags):
        self.assert_fails(USAGE, message, "run", "-m", harness.default_model, "-p", QUESTION, *flags)

    def test_what_does_not_fit_the_context(self):
        self.assert_refused("raise -c", "-c", "8")
        self.assert_refused("lower -n or raise -c", "-c", "64", "-n", "64")

    def test_bad_values_name_the_flag(self):
        for flag, value in (("--kv", "what"), ("-ctk", "q9"), ("-ctv", "f64"), ("-t", "0"),
                            ("-n", "-2"), ("-b", "0"), ("--chat-template", "nope"),
                            ("--seed", "x"), ("-c", "-1")):
            with self.subTest(flag=flag):
                spelled = {"-n": "-n", "--seed": "--seed", "-c": "--ctx-size"}.get(flag, flag)
                self.assert_refused(spelled, flag, value)

    def test_sampling_values(self):
        for flag, value in (("--temp", "-1"), ("--top-p", "3"), ("--min-p", "2"), ("--temp", "nan"),
                            ("--repeat-penalty", "0")):
            with self.subTest(flag=flag):
                self.assert_refused("", flag, value)

    def test_a_damaged_model_says_so(self):
        # A copy of a model whose embeddings are all infinite.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "damaged.gguf"
            shutil.copy(harness.tiny_models / "tiny-llama-mha-f32.gguf", path)
            tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
            embedding = tensors["token_embd.weight"]
            with open(path, "r+b") as file:
                file.seek(int(embedding.data_offset))
                file.write(struct.pack("<f", float("inf")) * int(embedding.n_elements))
            self.assert_fails(FAILURE, "not finite", "run", "-m", path, "-p", QUESTION, "-n", "2")

    def test_unwritable_files(self):
        self.assert_fails(FAILURE, "/no/dir/x.svg: cannot create", "demo", "--chart", "/no/dir/x.svg",
                          "-m", harness.default_model)
        self.assert_fails(FAILURE, "/no/dir/logits: cannot create", "score", "--logits-out",
                          "/no/dir/logits", "-p", "a b c", "-m", harness.default_model)


class Terminal:
    """kvern in a pseudo-terminal: what a person sees and types."""

    def __init__(self, *arguments):
        self.screen = ""
        self.process, self.terminal = self._start([str(a) for a in arguments])

    def _start(self, arguments):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([harness.program, *arguments], stdin=theirs, stdout=theirs,
                                   stderr=theirs, start_new_session=True)
        os.close(theirs)
        return process, ours

    def type(self, text):
        os.write(self.terminal, text.encode())

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def wait_for(self, text, seconds=60):
        """Everything seen up to `text`, which is taken off the screen."""
        deadline = time.monotonic() + seconds
        while text not in self.screen:
            ready, _, _ = select.select([self.terminal], [], [], deadline - time.monotonic())
            if not ready:
                raise AssertionError(f"no {text!r} within {seconds} s; on the screen: {self.screen!r}")
            try:
                self.screen += os.read(self.terminal, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"ended without {text!r}: {self.screen!r}") from None
        seen, self.screen = self.screen.split(text, 1)
        return seen

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.terminal)


class Conversation(harness.CommandTest):
    def start(self, *flags):
        terminal = Terminal("run", "-m", harness.default_model, "--temp", "0", *flags)
        self.addCleanup(terminal.close)
        terminal.wait_for("leaves.\r\n> ")  # not the progress bar's arrow
        return terminal

    def test_commands_and_the_closing_line(self):
        terminal = self.start("-n", "6")
        terminal.type("Hello\n")
        terminal.wait_for("\n> ")
        terminal.type("/stats\n")
        self.assertIn("last reply: prefill", terminal.wait_for("\n> "))
        terminal.type("And now?\n")
        terminal.wait_for("\n> ")
        terminal.type("/stats\n")
        self.assertRegex(terminal.wait_for("\n> "), r"last reply: prefill \d+ tokens \(\d+ cached\)")
        terminal.type("/exit\n")
        terminal.wait_for("KV cache")
        self.assertEqual(terminal.process.wait(10), 0)

    def test_edits_keep_exactly_the_unchanged_prefix(self):
        river, mountain, lake = "Name a long river.", "Name a long mountain range.", "And a lake?"
        terminal = self.start("-n", "12", "--chat-template", "chatml")

        def ids(*turns):
            roles = ("user", "assistant")
            text = "".join(f"<|im_start|>{roles[n % 2]}\n{turn}<|im_end|>\n"
                           for n, turn in enumerate(turns)) + "<|im_start|>assistant\n"
            return json.loads(self.output_of("tokenize", "-m", harness.default_model, "--no-bos",
                                             "--ids", "-p", text))

        def say(line):
            terminal.type(line + "\n")
            terminal.wait_for(line.split(" ", 2)[-1] + "\r\n")
            reply = terminal.wait_for("\n> ").replace("\r", "")
            reply = reply.removesuffix("\n(cut off: -n or -c was reached)")
            terminal.type("/stats\n")
            counts = re.search(r"prefill (\d+) tokens(?: \((\d+) cached\))?",
                               terminal.wait_for("\n> "))
            return reply, int(counts[1]), int(counts[2] or 0)

        def common(a, b):
            return len(os.path.commonprefix([a, b]))

        first, num_tokens, num_cached = say(river)
        of_river = ids(river)
        self.assertEqual((num_tokens, num_cached), (len(of_river), 0))
        second, num_tokens, num_cached = say(lake)
        of_lake = ids(river, first, lake)
        self.assertEqual(num_tokens, len(of_lake))
        self.assertGreaterEqual(num_cached, len(of_river))

        # Another first message: what it has in common with the old one.
        edited, num_tokens, num_cached = say(f"/edit 1 {mountain}")
        of_mountain = ids(mountain)
        self.assertEqual((num_tokens, num_cached),
                         (len(of_mountain), common(of_mountain, of_river)))
        alone = self.output_of("run", "-m", harness.default_model, "--temp", "0", "-n", "12",
                               "--chat-template", "chatml", "-p", mountain, "--json")
        self.assertEqual(edited.strip(), json.loads(alone)["text"].strip())

        # Back again: all but the last token, whose logits are needed; so the old branch is there.
        self.assertEqual(say(f"/edit 1 {river}"), (first, len(of_river), len(of_river) - 1))
        self.assertEqual(say(lake), (second, len(of_lake), len(of_lake) - 1))
        self.assertEqual(say("/regen"), (second, len(of_lake), len(of_lake) - 1))

        terminal.type("/history\n")
        self.assertIn(f"  1 {river}\r\n  2 {lake}\r", terminal.wait_for("\n> "))
        terminal.type("/edit 3 no\n")
        self.assertIn("there is no message '3': N is 1 to 2", terminal.wait_for("\n> "))

    def test_interrupts(self):
        terminal = self.start()
        terminal.type("Write a long story about an old mill by a lake.\n")
        terminal.wait_for("lake.\r\n")
        terminal.wait_for(" ")
        terminal.interrupt()
        terminal.wait_for("(stopped)")
        terminal.wait_for("> ")
        terminal.type("/stats\n")
        terminal.wait_for("> ")
        terminal.interrupt()
        terminal.wait_for("once more")
        terminal.interrupt()
        self.assertEqual(terminal.process.wait(10), 0)

    def test_a_history_that_no_longer_fits(self):
        terminal = self.start("-c", "64", "-n", "8")
        terminal.type("word " * 60 + "\n")
        self.assertIn("raise -c; /clear starts a new", terminal.wait_for("\n> "))
        terminal.type("Hi\n")
        self.assertNotIn("raise -c", terminal.wait_for("\n> "))


if __name__ == "__main__":
    harness.main()
