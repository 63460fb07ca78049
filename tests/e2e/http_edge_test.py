"""kvern serve: what it does with bytes that no good client sends."""

import json
import socket
import tempfile
import time
import unittest
from pathlib import Path

import harness
from serving import Server, read_to_end

HOST = "Host: localhost\r\n"


def request(line, headers="", body=""):
    return f"{line} HTTP/1.1\r\n{HOST}{headers}\r\n{body}"


def status_of(reply):
    return int(reply.split(b" ", 2)[1]) if reply else None


class HttpEdge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server(
            "--header-timeout", "1", "--body-timeout", "1", "--idle-timeout", "2",
            "--write-timeout", "2", "--max-body-bytes", "1000000", "--max-bodies-bytes", "3000000",
            "--max-queued-bytes", "65536", model=harness.tiny_models / "tiny-llama-gqa-q4_1.gguf"))

    def tearDown(self):
        # Whatever it was sent, it serves the next.
        self.assertEqual(self.server.get("/health")[0], 200)

    def assert_status(self, status, data):
        reply = self.server.raw(data)
        self.assertEqual(status_of(reply), status, reply)
        self.assertIn(b"Connection: close", reply)
        return json.loads(reply.split(b"\r\n\r\n", 1)[1])

    def test_lengths_that_two_could_read_differently(self):
        for headers in (
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
            "Transfer-Encoding:\tchunked,\r\n",
            "Content-Length: 5, 5\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Content-Length: 0x5\r\n",
            "X: folded\r\n value\r\n",
            "Host: other\r\n",
        ):
            with self.subTest(headers):
                error = self.assert_status(400, request("POST /tokenize", headers, "0\r\n\r\n"))
                self.assertEqual(error["error"]["type"], "invalid_request_error")
        self.assert_status(400, "GET /health HTTP/1.1\r\n\r\n")
        self.assert_status(400, f"POST /tokenize HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n")

    def test_what_is_too_long(self):
        self.assert_status(431, request("GET /health", "X: " + "a" * 40000 + "\r\n"))
        self.assert_status(431, "GET /" + "a" * 40000)
        self.assert_status(413, request("POST /tokenize", "Content-Length: 1000001\r\n"))
        chunked = "Transfer-Encoding: chunked\r\n"
        self.assert_status(413, request("POST /tokenize", chunked, "f4241\r\n" + "a" * 1000001))
        self.assert_status(431, request("POST /tokenize", chunked, "1;" + "a" * 60000))
        self.assert_status(431, request("POST /tokenize", chunked, "0\r\nT: " + "a" * 60000))

    def test_all_bodies_together_are_bounded(self):
        waiting = []
        for _ in range(4):
            connection = self.server.connect()
            connection.sendall(request("POST /tokenize", "Content-Length: 999999\r\n",
                                       "a" * 900000).encode())
            waiting.append(connection)
        replies = [read_to_end(connection) for connection in waiting]
        self.assertEqual(sorted(filter(None, map(status_of, replies))), [503])

    def test_a_body_may_come_byte_by_byte(self):
        text = request("POST /tokenize", "Transfer-Encoding: chunked\r\nConnection: close\r\n",
                       '8;x=y\r\n{"conten\r\n7\r\nt":"a"}\r\n0\r\nTrailer: t\r\n\r\n')
        for body in (text, text.replace("8;x=y\r\n{\"conten\r\n7\r\nt\":\"a\"}\r\n", "")):
            with self.subTest(body), self.server.connect() as connection:
                for byte in body.encode():
                    connection.sendall(bytes([byte]))
                    time.sleep(0.001)
                self.assertEqual(status_of(read_to_end(connection)), 200 if body == text else 400)

    def test_foreign_hosts_and_origins(self):
        self.assert_status(403, "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        self.assert_status(403, request("GET /health", "Origin: https://evil.example\r\n"))
        self.assert_status(403, request("POST /nothing", "Origin: null\r\n"))
        status, headers, _ = self.server.get("/health", headers={"Origin": "http://localhost:3000"})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]),
                         (200, "http://localhost:3000"))
        self.assertNotIn("Access-Control-Allow-Credentials", headers)
        status, headers, _ = self.server.ask("OPTIONS", "/v1/completions", headers={
            "Origin": "http://localhost", "Access-Control-Request-Headers": "authorization"})
        self.assertEqual((status, headers["Access-Control-Allow-Headers"]), (200, "authorization"))

        # A page that may not use the server is told nothing, and so its browser does not.
        foreign = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
        status, headers, body = self.server.ask("OPTIONS", "/v1/completions", headers=foreign)
        self.assertEqual((status, body), (200, b""))
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        self.assert_status(403, "OPTIONS / HTTP/1.1\r\nHost: evil.example\r\n"
                                "Origin: https://evil.example\r\n\r\n")

    def test_who_is_slow_is_let_go(self):
        for sent in (b"", b"GET /hea", request("POST /tokenize", "Content-Length: 9\r\n", "a").encode()):
            with self.subTest(sent), self.server.connect() as connection:
                connection.sendall(sent)
                begin = time.monotonic()
                self.assertEqual(read_to_end(connection), b"")
                self.assertLess(time.monotonic() - begin, 10)

    def test_a_trickle_does_not_hold_the_headers_open(self):
        with self.server.connect() as connection:
            begin = time.monotonic()
            try:
                for byte in request("GET /health", "X: " + "a" * 200 + "\r\n").encode():
                    connection.sendall(bytes([byte]))
                    time.sleep(0.05)
            except OSError:
                pass
            self.assertEqual(read_to_end(connection), b"")
            self.assertLess(time.monotonic() - begin, 10)

    def test_who_does_not_read_a_stream_is_let_go(self):
        body = json.dumps({"prompt": "a", "max_tokens": 100000, "ignore_eos": True, "stream": True,
                           "logprobs": 20})
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", self.server.port))
            connection.sendall(request("POST /v1/completions", f"Content-Length: {len(body)}\r\n",
                                       body).encode())
            time.sleep(4)
            connection.settimeout(30)
            received = read_to_end(connection)
        self.assertNotIn(b"[DONE]", received)

    def test_requests_in_a_row_are_answered_in_their_order(self):
        body = json.dumps({"content": "a"})
        post = request("POST /tokenize", f"Content-Length: {len(body)}\r\n", body)
        many = "\r\n" + (request("GET /health") + post + request("GET /v1/models")) * 20
        reply = self.server.raw(many + request("GET /health", "Connection: close\r\n"))
        bodies = [part.split(b"\r\n\r\n", 1)[1] for part in reply.split(b"HTTP/1.1 200 OK")[1:]]
        self.assertEqual(len(bodies), 61)
        for i, text in enumerate(bodies):
            self.assertIn(("status", "tokens", "data")[i % 3], json.loads(text))

    def test_continue_is_said_when_it_is_expected(self):
        with self.server.connect() as connection:
            connection.sendall(request("POST /tokenize", "Expect: 100-continue\r\nConnection: close\r\n"
                                       "Content-Length: 15\r\n").encode())
            self.assertEqual(connection.recv(4096), b"HTTP/1.1 100 Continue\r\n\r\n")
            connection.sendall(b'{"content":"a"}')
            self.assertEqual(status_of(read_to_end(connection)), 200)
        with self.server.connect() as connection:  # refused before the body is sent
            connection.sendall(request("POST /nothing", "Expect: 100-continue\r\n"
                                       "Content-Length: 15\r\n").encode())
            self.assertEqual(status_of(read_to_end(connection)), 404)

    def test_old_clients(self):
        reply = self.server.raw(f"GET /health HTTP/1.0\r\n{HOST}\r\n")
        self.assertTrue(reply.endswith(b'{"status":"ok"}'), reply)
        body = json.dumps({"prompt": "a", "max_tokens": 3, "stream": True})
        reply = self.server.raw(f"POST /v1/completions HTTP/1.0\r\n{HOST}"
                                f"Content-Length: {len(body)}\r\n\r\n{body}")
        self.assertNotIn(b"chunked", reply)
        self.assertTrue(reply.endswith(b"data: [DONE]\n\n"), reply)
        reply = self.server.raw(request("HEAD /health", "Connection: close\r\n"))
        self.assertTrue(reply.endswith(b"\r\n\r\n"), reply)

    def test_bytes_that_are_no_text(self):
        self.assert_status(400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n\r\n")
        for body in (b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": "a"', b"[" * 100000):
            status, _, reply = self.server.post("/v1/completions", body)
            self.assertEqual(status, 400, reply)

    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "kvern.sock")
            with Server("--unix-socket", path,
                        model=harness.tiny_models / "tiny-llama-gqa-q4_1.gguf"):
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.connect(path)
                    connection.sendall(request("GET /health", "Connection: close\r\n").encode())
                    self.assertEqual(status_of(read_to_end(connection)), 200)
            self.assertFalse(Path(path).exists())


if __name__ == "__main__":
    harness.main()
