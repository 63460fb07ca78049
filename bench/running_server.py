"""A server program that runs while a `with` statement lasts."""

import http.client
import re
import socket
import subprocess
import time
from pathlib import Path

from bench.process import BenchError, last_line

START_TIMEOUT_S = 60


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class RunningServer:
    """Ready when /health says 200; ended when the statement is left."""

    def __init__(self, name, command, log):
        self.name, self.log = name, log
        self.port = free_port()
        self.command = [*command, "--host", "127.0.0.1", "--port", self.port]

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [str(part) for part in self.command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )
        try:
            self._wait_until_ready()
        except BenchError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def get(self, path):
        """(status, body)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        finally:
            connection.close()

    def metric(self, name):
        """The value of a metric that has no label but the model's."""
        _, text = self.get("/metrics")
        found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        if not found:
            raise BenchError(f"{self.name}: /metrics has no {name}")
        return float(found[1])

    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10

    def cpu_ticks(self):
        """Clock ticks that threads have run, by their name."""
        ticks = {}
        for file in Path(f"/proc/{self.process.pid}/task").glob("*/stat"):
            name, rest = re.fullmatch(r"\d+ \((.*)\) (.*)", file.read_text().strip()).groups()
            fields = rest.split()
            ticks[name] = ticks.get(name, 0) + int(fields[11]) + int(fields[12])
        return ticks

    def _wait_until_ready(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise BenchError(f"{self.name}: {last_line(self.log.read_text())}")
            try:
                if self.get("/health")[0] == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            time.sleep(0.2)
        raise BenchError(f"{self.name}: not ready after {START_TIMEOUT_S} s")
