"""The commands that compute nothing, and how every command fails: one line that says what to do."""

import json
import tempfile
from pathlib import Path

import harness

USAGE, FAILURE = 2, 1


class CommandLine(harness.CommandTest):
    def test_help_lists_every_command(self):
        out = self.output_of("--help")
        for command in ("run", "score", "tokenize", "demo", "bench", "sim", "explain",
                        "inspect", "version"):
            self.assertIn(f"\n  {command} ", out)
            self.assertIn("--help", self.output_of(command, "--help"))

    def test_wrong_command_lines(self):
        self.assert_fails(USAGE, "kvern --help")
        self.assert_fails(USAGE, "--idz", "tokenize", "--idz")
        self.assert_fails(USAGE, "see: kvern tokenize --help", "tokenize", "--idz")
        self.assert_fails(USAGE, "-p and -f", "tokenize", "-p", "a", "-f", "b")
        self.assert_fails(USAGE, "frob", "frob")

    def test_full_disk(self):
        with open("/dev/full", "w") as full:
            done = harness.subprocess.run(
                [harness.program, "version"], stdout=full, stderr=harness.subprocess.PIPE, text=True
            )
        self.assertEqual(done.returncode, FAILURE)
        self.assertIn("cannot write", done.stderr)

    def test_version(self):
        document = json.loads(self.output_of("version", "--json"))
        self.assertRegex(document["version"], r"^\d+\.\d+\.\d+$")
        self.assertIn(document["isa"], document["isas"])
        self.assertIn(f"numerics version {document['numerics_version']}\n", self.output_of("version"))


class ModelFiles(harness.CommandTest):
    COMMANDS = (("inspect", "-m"), ("tokenize", "-p", "a", "-m"), ("score", "-p", "a b c", "-m"),
                ("run", "-p", "a", "-m"), ("demo", "-m"))

    def test_missing_and_foreign_files(self):
        for command in self.COMMANDS:
            with self.subTest(command[0]):
                self.assert_fails(FAILURE, "/no/such.gguf: cannot open", *command, "/no/such.gguf")
                self.assert_fails(FAILURE, "not a GGUF file", *command, Path(__file__))

    def test_truncated_files(self):
        whole = harness.default_model.read_bytes()
        for size in (3, 20, 1000, 3_000_000, len(whole) - 1):
            with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
                file.write(whole[:size])
                file.flush()
                for command in self.COMMANDS:
                    with self.subTest(command=command[0], size=size):
                        self.assert_fails(FAILURE, file.name, *command, file.name)

    def test_default_model(self):
        chosen = {"KVERN_MODEL": "/no/such.gguf"}
        self.assert_fails(FAILURE, "/no/such.gguf", "inspect", environment=chosen)
        out = self.output_of("inspect", "-m", harness.default_model, environment=chosen)
        self.assertIn("llama.block_count", out)


class Inspect(harness.CommandTest):
    def test_kv_bytes_per_token(self):
        # 30 layers, K and V, 3 KV heads of 64.
        numbers = 30 * 2 * 3 * 64
        out = self.output_of("inspect", harness.default_model)
        for dtype, size in (("f32", 4), ("f16", 2), ("bf16", 2), ("q8r", 33 / 32)):
            self.assertRegex(out, rf"{dtype}\s+{round(numbers * size)}")
        document = json.loads(self.output_of("inspect", harness.default_model, "--json"))
        self.assertIsInstance(document, dict)


class ExplainTree(harness.CommandTest):
    CATS = ("-p", "the cat sat", "-p", "the cat ran")

    def tree(self, *flags, **options):
        return json.loads(self.output_of("explain", "tree", "--json", *flags, **options))

    def test_characters(self):
        out = self.output_of("explain", "tree", "--chars", *self.CATS)
        self.assertIn("11 tokens: 8 cached, 2 blocks\n", out)
        self.assertIn('at 8 it has "r", where a cached text has "s"', out)
        self.assertIn('└─ "the " "cat "  2 blocks, 2 prompts\n   ├─ ', out)
        larger = self.tree("--chars", "--block-tokens", "5", *self.CATS)
        self.assertEqual(larger["prompts"][1]["in_whole_blocks"], 5)
        self.assertEqual(larger["prompts"][1]["copied_rows"], 3)

    def test_tokens_of_a_model(self):
        model = ("-m", harness.default_model, "--block-tokens", "2")
        tree = self.tree(*model, *self.CATS)
        ids = [json.loads(self.output_of("tokenize", "-m", harness.default_model, "--ids", "-p", text))
               for text in self.CATS[1::2]]
        self.assertEqual([prompt["tokens"] for prompt in tree["prompts"]], ids)
        lines = "\n".join(self.CATS[1::2])
        self.assertEqual(self.tree(*model, "-f", "-", text=lines), tree)
        self.assertEqual(self.tree(*model, text=json.dumps(self.CATS[1::2])), tree)

    def test_errors(self):
        explain = ("explain", "tree", "--chars")
        self.assert_fails(USAGE, "there is no prompt", *explain, text="")
        self.assert_fails(USAGE, "no JSON list of texts", *explain, text="[1]")
        self.assert_fails(USAGE, "prompt 2 has no tokens", *explain, text='["a", ""]')
        self.assert_fails(USAGE, "-p and -f", *explain, "-p", "a", "-f", "b")
        self.assert_fails(USAGE, "--block-tokens: 0", *explain, "-p", "a", "--block-tokens", "0")


class Tokenize(harness.CommandTest):
    TEXT = "Hello<|im_end|> wörld"

    def tokenize(self, *flags, text=None):
        return self.output_of("tokenize", "-m", harness.default_model, *flags, text=text)

    def test_forms(self):
        self.assertEqual(
            self.tokenize("-p", self.TEXT, "--show-count").splitlines(),
            [" 19556 -> 'Hello'", "     2 -> '<|im_end|>'", "   267 -> ' w'", " 29989 -> 'ör'",
             "   400 -> 'ld'", "Total number of tokens: 5"],
        )
        self.assertEqual(self.tokenize("--ids", text=self.TEXT), "[19556, 2, 267, 29989, 400]\n")
        document = json.loads(self.tokenize("--json", "-f", "-", text=self.TEXT))
        self.assertEqual(document["count"], 5)
        self.assertEqual(document["tokens"][1], {"id": 2, "text": "<|im_end|>"})

    def test_special_tokens_may_stay_text(self):
        ids = json.loads(self.tokenize("--ids", "--no-parse-special", "-p", self.TEXT))
        self.assertNotIn(2, ids)
        self.assertEqual(ids[0], 19556)

    def test_json_is_valid_whatever_the_bytes(self):
        document = json.loads(self.tokenize("--json", "-p", "🙂"))
        self.assertGreater(document["count"], 0)


if __name__ == "__main__":
    harness.main()
