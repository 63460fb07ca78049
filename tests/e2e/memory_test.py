"""How much memory kvern run takes: weights once, the KV cache, and little else."""

import os
import subprocess

import harness

CONTEXT = 2048
KV_BYTES_PER_TOKEN = 23040  # the default model's, in f16: kvern inspect
ALLOWANCE = 64 << 20


class PeakMemory(harness.CommandTest):
    def peak_bytes(self, *flags):
        command = [harness.program, "run", "-m", harness.default_model, "-no-cnv"]
        command += ["-c", str(CONTEXT), "-n", "8", "--temp", "0", *flags]
        prompt = "The same grain gives the same flour every time. " * 150  # some 1,500 tokens
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        process.stdin.write(prompt.encode())
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0)
        return usage.ru_maxrss * 1024

    def test_is_within_a_third_of_what_it_must_hold(self):
        kv_bytes = CONTEXT * KV_BYTES_PER_TOKEN
        limit = 1.3 * (harness.default_model.stat().st_size + kv_bytes + ALLOWANCE)
        for strategy in ("paged", "static"):
            with self.subTest(strategy):
                peak = self.peak_bytes("--kv", strategy)
                self.assertLessEqual(peak, limit, f"{peak >> 20} MiB")
                # It does hold the weights and the cache: the measure is of the right process.
                self.assertGreater(peak, harness.default_model.stat().st_size)


if __name__ == "__main__":
    harness.main()
