"""One answer: the logits of every token are the same bytes whatever the cache strategy, the prefill
chunk, the number of threads and the instruction set."""

import itertools
import json
import tempfile
from pathlib import Path

import harness

STRATEGIES = ("paged", "dynamic", "static", "none")
DTYPES = ("f32", "f16", "bf16")
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

    def test_real_model(self):
        text = (harness.ROOT / "ARCHITECTURE.md").read_text()[:2000]
        ids = json.loads(self.output_of("tokenize", "-m", harness.default_model, "--ids", text=text))
        ids = ids[:140]
        # Chosen so that each pair of values of two flags occurs; the strategy none is the slow one.
        rows = [("paged", "f16", 7, 2), ("paged", "f32", 512, 1), ("dynamic", "f16", 100, 1),
                ("dynamic", "bf16", 16, 2), ("static", "f32", 16, 2), ("static", "f16", 512, 2),
                ("paged", "bf16", 100, 2), ("static", "bf16", 7, 1)]
        if harness.IS_FULL:
            rows = itertools.product(STRATEGIES, DTYPES, CHUNKS, (1, 2))
        references = {}
        for strategy, dtype, chunk, threads in rows:
            types = {"cache_type_k": dtype, "cache_type_v": dtype}
            if dtype not in references:
                references[dtype] = self.logits(harness.default_model, ids, kv="none", **types)
            with self.subTest(kv=strategy, dtype=dtype, chunk=chunk, threads=threads):
                logits = self.logits(harness.default_model, ids, kv=strategy, batch_size=chunk,
                                     threads=threads, **types)
                self.assertTrue(logits == references[dtype], "the logits differ")


if __name__ == "__main__":
    harness.main()
