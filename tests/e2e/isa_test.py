"""One answer on CPUs that this machine is not: an emulator runs the very program, without AVX-512 and
without AVX2, and every byte equals the native run's."""

import json
import subprocess
import tempfile
from pathlib import Path

import harness

AVX2_CPU = "max"  # of the emulator: AVX2, FMA and F16C, but no AVX-512
SSE_CPU = "Nehalem"
# Whole programs on a few models; the golden logits are of every weight type.
MODELS = ("tiny-llama-gqa-k_mix", "tiny-llama-gqa-q4_1", "tiny-llama-linear-q5_1",
          "tiny-llama-gqa7-f16")


class OtherCpus(harness.CommandTest):
    def on(self, cpu, *arguments):
        """(exit code, standard output, standard error) of kvern on an emulated CPU; None is this one."""
        emulator = [] if cpu is None else ["qemu-x86_64", "-cpu", cpu]
        done = subprocess.run([*emulator, harness.program, *map(str, arguments)],
                              stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
                              timeout=300)
        return done.returncode, done.stdout, done.stderr

    def output_on(self, cpu, *arguments):
        code, out, err = self.on(cpu, *arguments)
        self.assertEqual(code, 0, err)
        return out

    def logits_on(self, cpu, model, *flags):
        with tempfile.TemporaryDirectory() as folder:
            ids, out = Path(folder, "ids"), Path(folder, "logits")
            ids.write_text(" ".join(str((i * 37 + 11) % 250) for i in range(11)))
            self.output_on(cpu, "score", "-m", harness.tiny_models / f"{model}.gguf", "--ids", ids,
                           "--logits-out", out, "--threads", "2", *flags)
            return out.read_bytes()

    def test_the_fastest_instruction_set_of_the_cpu_is_chosen(self):
        for cpu, chosen in ((AVX2_CPU, "avx2"), (f"{AVX2_CPU},-fma", "scalar"),
                            (f"{AVX2_CPU},-f16c", "scalar"), (SSE_CPU, "scalar")):
            with self.subTest(cpu):
                document = json.loads(self.output_on(cpu, "version", "--json"))
                self.assertEqual(document["isa"], chosen)

    def test_what_the_cpu_lacks_is_refused(self):
        model = harness.tiny_models / f"{MODELS[0]}.gguf"
        for cpu, isa in ((AVX2_CPU, "avx512"), (SSE_CPU, "avx2")):
            code, out, err = self.on(cpu, "run", "-m", model, "-p", "a", "-no-cnv", "--isa", isa)
            self.assertNotEqual(code, 0)
            self.assertIn(f"this CPU lacks {isa}", err)

    def test_golden_logits(self):
        out = self.output_on(AVX2_CPU, "version", "--check")
        self.assertEqual(out, "golden logits on scalar: ok\ngolden logits on avx2: ok\n")

    def test_logits(self):
        for number, model in enumerate(MODELS):
            expected = self.logits_on(None, model)
            chunks = (1, 512) if number % 2 else (512, 1)
            for cpu, chunk in zip((AVX2_CPU, SSE_CPU), chunks):
                with self.subTest(model=model, cpu=cpu, chunk=chunk):
                    same = self.logits_on(cpu, model, "--batch-size", chunk) == expected
                    self.assertTrue(same, "the logits differ")

    def test_a_generated_answer(self):
        model = harness.tiny_models / f"{MODELS[0]}.gguf"
        command = ("run", "-m", model, "-p", "grain", "-n", "12", "--temp", "0", "--json")
        expected = json.loads(self.output_on(None, *command))["tokens"]
        for cpu, isa in ((AVX2_CPU, "auto"), (AVX2_CPU, "scalar"), (SSE_CPU, "auto")):
            with self.subTest(cpu=cpu, isa=isa):
                document = json.loads(self.output_on(cpu, *command, "--isa", isa))
                self.assertEqual(document["tokens"], expected)


if __name__ == "__main__":
    harness.main()
