"""kvern serve under load from 64 clients, good ones and bad ones: half a minute, or five (KVERN_FULL).

Every answer that is finished is the one that its request gets alone; at the end nothing is held.
"""

import json
import random
import socket
import threading
import time
import unittest

import harness
from serving import Server, read_to_end

CLIENTS, DISTINCT = 64, 32
SECONDS = 300 if harness.IS_FULL else 30
FIRST_LOOK = 60 if harness.IS_FULL else 10
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def make_requests(chance):
    """(path, body): short and long prompts, shared and private, sampled and not."""
    system = "You answer in a few words. " * 12
    made = []
    for i in range(DISTINCT):
        body = {"seed": i, "temperature": (0, 0.9)[i % 2], "max_tokens": chance.randint(1, 24),
                "logprobs": i % 3 == 0 or None}
        if i % 4 == 3:
            made.append((TEXT, {**body, "logprobs": 1, "n": 1 + i % 3,
                                "prompt": f"{i} " + "and so on " * chance.randint(1, 60)}))
        else:
            messages = [{"role": "system", "content": system}] if i % 2 else []
            messages.append({"role": "user", "content": f"What is {i} times {i + 1}?"})
            made.append((CHAT, {**body, "messages": messages, "stop": [";"] if i % 5 == 0 else None}))
    return made


def choices_of(path, events):
    """What a stream says, in the form of a whole reply: [(text, finish)]."""
    found = {}
    for event in events:
        for choice in event["choices"]:
            text, _ = found.get(choice["index"], ("", None))
            more = choice["delta"].get("content") or "" if path == CHAT else choice["text"]
            found[choice["index"]] = (text + more, choice["finish_reason"])
    return [found[index] for index in sorted(found)]


def texts_of(path, reply):
    return [(choice["message"]["content"] if path == CHAT else choice["text"],
             choice["finish_reason"]) for choice in reply["choices"]]


class Load(unittest.TestCase):
    def setUp(self):
        self.seed = random.randrange(1 << 32)
        print(f"seed {self.seed}", flush=True)
        self.server = self.enterContext(Server(
            "--body-timeout", "5", "--write-timeout", "5", "--header-timeout", "5",
            "-c", "2048", "--kv-tokens", "4096", "--max-body-bytes", "20000000"))
        # All KV memory has been used once: what grows from now on is something else.
        for word in ("first", "second", "third"):
            status, _, reply = self.server.post(TEXT, {"prompt": f"{word} " * 1900, "max_tokens": 1})
            self.assertEqual(status, 200, reply)
        self.requests = make_requests(random.Random(self.seed))
        self.alone = []
        for path, body in self.requests:
            status, _, reply = self.server.post(path, {**body, "cache_prompt": False})
            self.assertEqual(status, 200, reply)
            self.alone.append(reply)
        self.counts, self.problems, self.lock = {}, [], threading.Lock()

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def expect(self, is_so, problem):
        if not is_so:
            with self.lock:
                self.problems.append(problem)

    # What a client may do.

    def ask(self, chance):
        index = chance.randrange(DISTINCT)
        path, body = self.requests[index]
        status, _, reply = self.server.post(path, body)
        self.expect(status == 200, f"{status}: {reply}")
        if status == 200:
            self.expect(reply["choices"] == self.alone[index]["choices"],
                        f"request {index}: {reply['choices']}, alone {self.alone[index]['choices']}")

    def stream(self, chance):
        index = chance.randrange(DISTINCT)
        path, body = self.requests[index]
        status, events = self.server.stream(path, body)
        self.expect(status == 200 and events[-1] == "[DONE]", f"stream of {index}: {events}")
        if status == 200:
            said = choices_of(path, [event for event in events if isinstance(event, dict)])
            self.expect(said == texts_of(path, self.alone[index]), f"stream of {index}: {said}")

    def send(self, chance, more=None):
        """Sends a request for a stream; returns its connection."""
        path, body = self.requests[chance.randrange(DISTINCT)]
        text = json.dumps({**body, "stream": True, **(more or {})})
        connection = self.server.connect()
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                           f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        return connection

    def read_slowly(self, chance):
        with self.send(chance) as connection:
            received = b""
            while piece := connection.recv(200):
                received += piece
                time.sleep(0.01)
        self.expect(b"data: [DONE]" in received, f"a slow reader: {received}")

    def go_away(self, chance):
        with self.send(chance, {"max_tokens": 2000, "ignore_eos": True}) as connection:
            time.sleep(chance.random())
            if chance.random() < 0.5:
                connection.recv(100)

    def send_half(self, chance):
        with self.server.connect() as connection:
            text = (f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"
                    + "x" * 4000)
            connection.sendall(text[:chance.randrange(1, len(text))].encode())
            time.sleep(chance.random())

    def send_much(self, chance):
        status, _, reply = self.server.post("/tokenize", json.dumps({"content": 5, "x": "a" * 10**7}))
        self.expect(status == 400, f"10 MB: {status} {reply}")

    def send_nonsense(self, chance):
        body = chance.choice([b"{", b"\xff\xfe", b'{"prompt": "\xc3"}', b'{"messages": 5}', b"[[[[",
                              b'{"prompt": [1, -1]}', b'{"prompt": "a", "n": 1e9}'])
        status, _, reply = self.server.post(chance.choice([CHAT, TEXT]), body)
        self.expect(status == 400 and reply["error"]["message"], f"{body}: {status} {reply}")

    def flood_headers(self, chance):
        text = "GET /health HTTP/1.1\r\nHost: localhost\r\n" + "".join(
            f"X-{i}: {'a' * 100}\r\n" for i in range(1000))
        reply = self.server.raw(text)
        self.expect(not reply or b" 431 " in reply, f"a flood: {reply[:100]}")

    def pipeline(self, chance):
        count = chance.randint(2, 20)
        text = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * (count - 1)
        with self.server.connect() as connection:
            connection.sendall(
                (text + "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").encode())
            reply = read_to_end(connection)
        self.expect(reply.count(b"200 OK") == count, f"{count} in a row: {reply}")

    def test_load(self):
        actions = [self.ask] * 6 + [self.stream] * 6 + [
            self.read_slowly, self.go_away, self.go_away, self.send_half, self.send_much,
            self.send_nonsense, self.flood_headers, self.pipeline]
        end = time.monotonic() + SECONDS

        def run(number):
            chance = random.Random(self.seed + number)
            while time.monotonic() < end:
                action = chance.choice(actions)
                try:
                    action(chance)
                    self.count(action.__name__)
                except (OSError, socket.timeout, ValueError) as error:
                    self.expect(False, f"{action.__name__}: {error!r}")

        clients = [threading.Thread(target=run, args=(i,)) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        time.sleep(FIRST_LOOK)
        first_rss = self.rss_bytes()
        for client in clients:
            client.join()
        last_rss = self.rss_bytes()
        print(self.counts, f"RSS {first_rss >> 20} MiB, then {last_rss >> 20} MiB", flush=True)
        self.assertEqual(self.problems[:5], [])
        self.assertIsNone(self.server.process.poll())
        self.assertEqual(self.active_bytes(), 0)
        self.assertLessEqual(last_rss, 1.02 * first_rss + (8 << 20))

    def rss_bytes(self):
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as lines:
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))

    def active_bytes(self):
        """Once those who went away have been forgotten."""
        deadline = time.monotonic() + 10
        while True:
            _, _, text = self.server.get("/metrics")
            line = next(line for line in text.decode().splitlines()
                        if line.startswith("kvern_kv_bytes") and 'state="active"' in line)
            found = float(line.rsplit(" ", 1)[1])
            if found == 0 or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


if __name__ == "__main__":
    harness.main()
