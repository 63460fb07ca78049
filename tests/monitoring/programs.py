"""Debian's programs that operators put around `kvern serve`, as unpacked by the script."""

import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNPACKED = ROOT / "build/monitoring/root"
LIBRARIES = UNPACKED / "usr/lib/x86_64-linux-gnu"
START_TIMEOUT_S = 30


def path_of(name):
    """Of an unpacked program."""
    return next(UNPACKED / folder / name for folder in ("usr/bin", "usr/sbin")
                if (UNPACKED / folder / name).exists())


def environment():
    return {**os.environ, "LD_LIBRARY_PATH": str(LIBRARIES)}


def run(name, *arguments, text=None):
    """(exit code, all that it printed) of an unpacked program."""
    done = subprocess.run([path_of(name), *map(str, arguments)], input=text, encoding="utf-8",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                          stdin=subprocess.DEVNULL if text is None else None, env=environment())
    return done.returncode, done.stdout


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def edited(text, changes):
    """A file of docs/ with other addresses and paths. Each of them must be there."""
    for old, new in changes.items():
        if old not in text:
            raise AssertionError(f"{old!r} is not in the file")
        text = text.replace(old, str(new))
    return text


class Program:
    """One that runs in the foreground, in a `with` statement, until it listens on `port`."""

    def __init__(self, port, name, *arguments):
        self.port = port
        self.command = [path_of(name), *map(str, arguments)]

    def __enter__(self):
        self.output = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=self.output,
                                        stderr=self.output, env=environment())
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        raise AssertionError(f"{self.command} does not listen on {self.port}: {self.printed}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.output.seek(0)
        self.printed = self.output.read()
        self.output.close()
