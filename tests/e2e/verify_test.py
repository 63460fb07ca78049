"""kvern verify: the receipt that examples/generate prints, on every instruction set, and altered."""

import json
import re
import tempfile
from pathlib import Path

import harness

FAILURE = 1
GENERATED = harness.ROOT / "examples" / "generate.txt"


class Verify(harness.CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "reply.json"
        self.receipt = json.loads(GENERATED.read_text().splitlines()[-1])

    def verify(self, document, *flags):
        text = document if isinstance(document, str) else json.dumps(document)
        self.file.write_text(text)
        return self.output_of("verify", self.file, "-m", harness.default_model, *flags)

    def assert_not_verified(self, message, document, model=None):
        self.file.write_text(json.dumps(document))
        self.assert_fails(FAILURE, message, "verify", self.file, "-m",
                          model or harness.default_model)

    def test_every_instruction_set_gives_the_digest(self):
        listed = json.loads(self.output_of("version", "--json"))
        for isa in listed["isas"]:
            with self.subTest(isa=isa):
                out = self.verify(self.receipt, "--isa", isa, "-t", "1")
                self.assertRegex(out, r"\Averified: 7 prompt tokens, \d+ tokens of the answer, "
                                      rf"digest {self.receipt['answer']['digest']}\n\Z")

    def test_replies_and_lines_of_replies(self):
        line = json.dumps({"response": {"body": {"kvern_receipt": self.receipt}}})
        wrong = json.dumps({"receipt": {**self.receipt, "answer": {
            **self.receipt["answer"], "digest": "0" * 64}}})
        out = self.verify(f"{line}\n{{}}\n{line}\n")
        self.assertEqual(len(re.findall(r"^line [13]: verified: ", out, re.M)), 2, out)
        self.file.write_text(f"{line}\n{wrong}\n")
        code, out, err = self.run_kvern("verify", self.file, "-m", harness.default_model)
        self.assertEqual(code, FAILURE)
        self.assertRegex(out, r"line 2: not verified: digest: 0{64} in the receipt, ")
        self.assertIn("1 of 2 receipts are not verified", err)

    def test_what_was_altered_is_named(self):
        receipt = self.receipt
        completion = receipt["answer"]["completions"][0]
        completion["tokens"] += 1
        self.assert_not_verified("completion 0: 21 tokens in the receipt, 20 here", receipt)
        completion["tokens"] -= 1
        receipt["request"]["seed"] += 1
        self.assert_not_verified("digest: ", receipt)
        receipt["request"]["seed"] -= 1
        receipt["model"]["fingerprint"] = "0" * 64
        self.assert_not_verified("the receipt was altered", receipt)

    def test_another_model_is_named_by_its_fields(self):
        other = next(harness.tiny_models.glob("tiny-llama*.gguf"))
        self.assert_not_verified("config.hidden: 576 in the receipt, ", self.receipt, other)

    def test_what_is_no_receipt(self):
        self.assert_not_verified("holds no receipt", {"text": "Hello"})
        del self.receipt["request"]["sampling"]["min_p"]
        self.assert_not_verified("request.sampling.min_p: is missing", self.receipt)


if __name__ == "__main__":
    harness.main()
