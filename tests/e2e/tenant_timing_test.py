"""What the time to the first token tells one tenant of what another asked: nothing, unless they share.

Tenant a asks one prompt of each pair; tenant b then asks both, in random order. AUC is the chance that the
one that a had asked came sooner: a half where time tells nothing. Slow: scripts/test-full runs it.
"""

import random
import tempfile
import time
import unittest
from pathlib import Path

import harness
from serving import Server

PAIRS = 200
WORDS = ("river mill stone flour wheel water grain bread oven baker field plough seed harvest barn cart "
         "horse road town market coin ledger ink paper letter lamp oil night star moon tide boat net").split()


def auc(sooner, later):
    """The chance that one of `sooner` is below one of `later`, ties counting half."""
    wins = sum((a < b) + 0.5 * (a == b) for a in sooner for b in later)
    return wins / (len(sooner) * len(later))


class TenantTiming(unittest.TestCase):
    def measure(self, *flags):
        chance = random.Random(7)
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("key-a tenant=a\nkey-b tenant=b\n")
            with Server("--api-key-file", keys, "--kv-tokens", "200000", *flags) as server:

                def seconds(key, prompt):
                    begin = time.perf_counter()
                    status, _, reply = server.post(
                        "/v1/completions", {"prompt": prompt, "max_tokens": 1},
                        headers={"Authorization": f"Bearer {key}"})
                    self.assertEqual(status, 200, reply)
                    return time.perf_counter() - begin

                asked, fresh = [], []
                for _ in range(PAIRS):
                    pair = [" ".join(chance.choices(WORDS, k=120)) for _ in range(2)]
                    seconds("key-a", pair[0])
                    for index in chance.sample((0, 1), 2):
                        (asked if index == 0 else fresh).append(seconds("key-b", pair[index]))
                return auc(asked, fresh)

    def test_apart_time_tells_nothing(self):
        found = self.measure()
        print(f"AUC apart {found:.3f}", flush=True)
        self.assertLessEqual(abs(found - 0.5), 0.1)

    def test_in_a_group_it_tells_all(self):
        found = self.measure("--share-prefixes", "us")
        print(f"AUC in a group {found:.3f}", flush=True)
        self.assertGreaterEqual(found, 0.99)


if __name__ == "__main__":
    harness.main()
