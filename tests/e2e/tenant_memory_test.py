"""What tenants have of a small KV cache: shares, floors, and how both are told."""

import re
import signal
import subprocess
import tempfile
import threading
import unittest
from pathlib import Path

import harness
from serving import Server

CHAT = "/v1/chat/completions"
FLAGS = ("-c", "1024", "--kv-tokens", "2048", "-t", "1")
KEYS = ("key-a tenant=a kv_share=25%\n"
        "key-b tenant=b kv_floor=512\n"
        "key-root tenant=root rights=infer,inspect,admin\n")


def key(name):
    return {"Authorization": f"Bearer key-{name}"}


def words(name, count):
    return " ".join(f"{name}{i % 10}" for i in range(count))


class TenantMemory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.keys = Path(cls.folder.name) / "keys"
        cls.keys.write_text(KEYS)
        cls.server = Server("--api-key-file", cls.keys, *FLAGS).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__()
        cls.folder.cleanup()

    def ask(self, name, text, **fields):
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 4,
                "temperature": 0, **fields}
        return self.server.post(CHAT, body, headers=key(name))

    def usage(self, name, text):
        status, _, reply = self.ask(name, text)
        self.assertEqual(status, 200, reply)
        return reply["usage"], reply["choices"][0]["message"]["content"]

    def own(self, name):
        return self.server.get("/kv", headers=key(name))[2]["own"]

    def test_a_share_evicts_its_own_and_changes_no_answer(self):
        first, second = words("one", 150), words("two", 150)
        usage, answer = self.usage("a", first)
        self.assertLess(usage["prompt_tokens"], 500)
        self.assertGreater(2 * usage["prompt_tokens"], 512)
        others, _ = self.usage("root", words("other", 100))
        self.usage("a", second)
        self.assertLessEqual(sum(self.own("a")[f"{state}_bytes"]
                                 for state in ("active", "cached", "reserved")),
                             self.own("a")["share_bytes"])
        usage, again = self.usage("a", first)
        missed = usage["prompt_tokens_details"]["kvern_missed"]
        self.assertGreater(missed["evicted"], 0)
        self.assertEqual(again, answer)
        _, _, explained = self.server.post(
            "/kv/explain", {"messages": [{"role": "user", "content": second}]}, headers=key("a"))
        self.assertIn("share", [miss.get("cause") for miss in explained["misses"]], explained)
        usage, _ = self.usage("root", words("other", 100))  # nobody else felt it
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"],
                           others["prompt_tokens"] - 17)

    def test_what_never_fits_is_refused_at_once(self):
        status, headers, reply = self.ask("a", words("long", 300))
        self.assertEqual(status, 400, reply)
        self.assertIn("can never fit", reply["error"]["message"])
        self.assertRegex(reply["error"]["message"], r"this tenant may have .* room for 5\d\d")
        self.assertEqual(self.ask("root", words("long", 300))[0], 200)

    def test_others_leave_a_floor(self):
        text = words("kept", 150)
        size = self.usage("b", text)[0]["prompt_tokens"]
        self.assertLessEqual(size, 512)
        for i in range(5):
            self.usage("root", words(f"flood{i}x", 200))
        usage, _ = self.usage("b", text)
        self.assertGreater(usage["prompt_tokens_details"]["cached_tokens"], size - 17)
        own = self.own("b")
        per_token = own["floor_bytes"] / 512
        self.assertGreaterEqual(own["cached_bytes"], (size - 16) * per_token)

    def test_requests_of_a_full_share_take_turns(self):
        replies = {}

        def run(number):
            name = "a" if number < 6 else "root"
            replies[number] = self.ask(name, words(f"turn{number}x", 90), max_tokens=40,
                                       ignore_eos=True)
        threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number, (status, _, reply) in replies.items():
            self.assertEqual((status, reply["usage"]["completion_tokens"]), (200, 40))
            alone = self.ask("root", words(f"turn{number}x", 90), max_tokens=40, ignore_eos=True)
            self.assertEqual(reply["choices"][0]["message"], alone[2]["choices"][0]["message"])
        self.assertEqual(self.own("a")["active_bytes"], 0)

    def test_administrators_see_it_in_metrics(self):
        pattern = r'kvern_tenant_kv_(bytes|share_bytes|floor_bytes)\{[^}]*tenant="(\w)"[^}]*\} (\S+)'
        lines = lambda name: re.findall(
            pattern, self.server.get("/metrics", headers=key(name))[2].decode())
        self.assertEqual(lines("a"), [])
        seen = {(what, tenant): value for what, tenant, value in lines("root")}
        self.assertEqual(len(seen), 6)
        self.assertEqual(seen["share_bytes", "b"], "+Inf")
        self.assertEqual(float(seen["share_bytes", "a"]), self.own("a")["share_bytes"])
        self.assertEqual(float(seen["floor_bytes", "b"]), self.own("b")["floor_bytes"])

    def test_floors_that_do_not_fit_keep_the_old_keys(self):
        self.keys.write_text(KEYS + "key-c kv_floor=80%\n")
        self.server.signal(signal.SIGHUP)
        self.server.wait_for(r"line 4: kv_floor, \d+ tokens, is more than the \d+ of \d+ in the "
                             "KV cache that the floors above leave: the old ones stay in use")
        self.assertEqual(self.ask("c", "Hi")[0], 401)
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("key-a\nkey-b kv_floor=4096\n")
            done = subprocess.run(
                [str(part) for part in (harness.program, "serve", "--port", 0, "-m",
                                        harness.default_model, "--api-key-file", keys, *FLAGS)],
                capture_output=True, text=True, timeout=120)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"{keys}: line 2: kv_floor, 4096 tokens", done.stderr)

    def test_no_quota_where_all_share_their_prefixes(self):
        why = ("kv_share and kv_floor are of blocks that one tenant has, and with --share-prefixes all "
               "have them together: leave out the one or the other")
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("key-a tenant=a\nkey-b tenant=b kv_floor=512\n")
            flags = ("--api-key-file", keys, "--share-prefixes", "us", *FLAGS)
            done = subprocess.run(
                [str(part) for part in (harness.program, "serve", "--port", 0, "-m",
                                        harness.default_model, *flags)],
                capture_output=True, text=True, timeout=120)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"{keys}: line 2: {why}", done.stderr)
            # Nor later, when the file is read again: the old keys stay.
            keys.write_text("key-a tenant=a\n")
            with Server(*flags) as server:
                keys.write_text("key-a tenant=a kv_share=50%\nkey-new tenant=a\n")
                server.signal(signal.SIGHUP)
                server.wait_for(re.escape(f"line 1: {why}: the old ones stay in use"))
                self.assertEqual(server.get("/kv", headers=key("a"))[0], 200)
                self.assertEqual(server.get("/kv", headers=key("new"))[0], 401)


if __name__ == "__main__":
    harness.main()
