"""A server under test: starts `kvern serve`, and talks to it over sockets as clients do."""

import http.client
import json
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

import harness

START_TIMEOUT_S = 120


class Server:
    """Used in a `with` statement; what it printed is in `log` afterwards."""

    def __init__(self, *flags, model=None, waits=True, environment=None, port=0):
        self.flags = ["--port", port, "-m", model or harness.default_model, *flags]
        self.waits = waits
        self.environment = environment

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.log_file = Path(self.folder.name) / "log"
        with self.log_file.open("w") as output:
            self.process = subprocess.Popen(
                [str(part) for part in (harness.program, "serve", *self.flags)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment)
        found = self.wait_for(r"(https?|unix):(\S+): loading")
        self.port = int(found[2].rsplit(":", 1)[1]) if found[1] != "unix" else None
        if self.waits:
            self.wait_for("serving")
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.folder.cleanup()

    @property
    def log(self):
        return self.log_file.read_text()

    def wait_for(self, pattern):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if found := re.search(pattern, self.log):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"no {pattern!r} in: {self.log}")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def raw(self, data, timeout=60):
        """All bytes that come until the server closes the connection."""
        with self.connect() as connection:
            connection.settimeout(timeout)
            connection.sendall(data if isinstance(data, bytes) else data.encode())
            return read_to_end(connection)

    def ask(self, method, path, body=None, headers=None, tls=False):
        """(status, headers, body): JSON where it is."""
        if tls:
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=120,
                                                     context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            if body is not None and not isinstance(body, (str, bytes)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            text = reply.read()
            is_json = (reply.getheader("Content-Type") or "").startswith("application/json")
            return reply.status, dict(reply.getheaders()), json.loads(text) if is_json else text
        finally:
            connection.close()

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def post(self, path, body, **options):
        return self.ask("POST", path, body, **options)

    def stream(self, path, body):
        """(status, events): the data of each, parsed; "[DONE]" is a string; ":…" a comment."""
        status, _, text = self.post(path, {**body, "stream": True})
        if status != 200:
            return status, text
        events = []
        for event in text.decode().split("\n\n")[:-1]:
            data = event.removeprefix("data: ")
            events.append(json.loads(data) if data.startswith("{") else data)
        return status, events


def read_to_end(connection):
    received = b""
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionResetError:
        pass
    return received
