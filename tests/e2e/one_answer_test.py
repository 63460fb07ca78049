"""One answer: the logits of every token are the same bytes whatever the cache strategy, the prefill
chunk, the number of threads and the instruction set: through the command line, on all tiny models.
one_answer.cc does the same on the real model, step by step."""

import itertools
import json
import tempfile
from pathlib import Path

import harness

STRATEGIES = ("paged", "dynamic", "static", "none")
DTYPES = ("f32", "f16", "bf16", "q8r")
CHUNKS = (1, 7, 16, 100, 512)


class OneAnswer(harness.CommandTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.isas = json.loads(self.output_of("version", "--json"))["isas"]

    def logits(self, model, ids, **flags):
        """Bytes of the logits that `kvern score` gives; flags are its, without dashes."""
        ids_file, out = self.folder / "ids", self.folder / "logits"
        ids_file.write_text(" ".join(map(str, ids)) + "\n")
        spelled = [word for name, value in flags.items()
                   for word in ("--" + name.replace("_", "-"), str(value))]
        self.output_of("score", "-m", model, "--ids", ids_file, "--logits-out", out, *spelled)
        return out.read_bytes()

    def check(self, model, ids, reference_flags, variants):
        reference = self.logits(model, ids, **reference_flags)
        for variant in variants:
            with self.subTest(model=model.name, **{**reference_flags, **variant}):
                same = self.logits(model, ids, **{**reference_flags, **variant}) == reference
                self.assertTrue(same, "the logits differ")

    def test_tiny_models(self):
        pairs = list(itertools.product(DTYPES, DTYPES))
        for n, model in enumerate(sorted(harness.tiny_models.glob("*.gguf"))):
            ids = [(i * 37 + 11) % 250 for i in range(150)]
            for k, v in pairs if harness.IS_FULL else [pairs[n % len(pairs)]]:
                reference = {"kv": "none", "cache_type_k": k, "cache_type_v": v, "batch_size": 512,
                             "threads": 1, "isa": "scalar"}
                self.check(model, ids, reference, self.tiny_variants())

    def tiny_variants(self):
        threads = (1, 2, 4)
        if harness.IS_FULL:
            grid = itertools.product(STRATEGIES, CHUNKS, threads, self.isas)
            return [{"kv": s, "batch_size": c, "threads": t, "isa": i} for s, c, t, i in grid]
        # Every chunk, strategy, thread count and instruction set, but not every combination.
        return [{"kv": STRATEGIES[n % len(STRATEGIES)], "batch_size": chunk,
                 "threads": threads[n % len(threads)], "isa": self.isas[-1 - n % len(self.isas)]}
                for n, chunk in enumerate(CHUNKS)]


if __name__ == "__main__":
    harness.main()
