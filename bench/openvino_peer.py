"""OpenVINO GenAI: installs it beside the other peers and asks bench/openvino_driver.py for numbers.

The library needs seconds to read a model, so one driver process per thread count stays for the
whole run. It sleeps between requests.
"""

import json
import select
import subprocess
from pathlib import Path

from bench.process import BenchError, command_line, last_line, run_step

PACKAGE = "openvino-genai==2026.4.1.0"
DRIVER = Path("bench/openvino_driver.py")
START_TIMEOUT_S = 180


def install(peers, log):
    """The Python of an environment that has the package; makes it when it is missing."""
    folder = peers / "openvino"
    made_for = folder / "made-for"
    python = folder / "bin" / "python"
    if made_for.exists() and made_for.read_text() == PACKAGE:
        return python
    log(f"Installing {PACKAGE} in {folder}")
    run_step(["/usr/bin/python3", "-m", "venv", "--clear", folder])
    pip = [folder / "bin" / "pip", "--disable-pip-version-check", "install", "-q", PACKAGE]
    try:
        run_step(pip)
    except BenchError:
        hint = "check the network and run this again"
        raise BenchError(f"cannot install {PACKAGE}: {hint}") from None
    made_for.write_text(PACKAGE)
    return python


class Driver:
    """A running openvino_driver.py: one JSON object a line to it, one back."""

    def __init__(self, command, error_log):
        self.error_log = error_log
        with error_log.open("w") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )
        try:
            self.about = self._read(START_TIMEOUT_S)
        except BenchError:
            self.close()
            raise

    def ask(self, request, timeout_s):
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise BenchError(f"OpenVINO: {self._last_error()}") from None
        return self._read(timeout_s)

    def close(self):
        self.process.kill()
        self.process.communicate()

    def _read(self, timeout_s):
        ready, _, _ = select.select([self.process.stdout], [], [], timeout_s)
        if not ready:
            raise BenchError(f"OpenVINO: no answer after {timeout_s} s")
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"OpenVINO: {self._last_error()}")
        try:
            answer = json.loads(line)
        except json.JSONDecodeError as error:
            raise BenchError(f"OpenVINO: its driver's answer is no JSON: {error}") from None
        if "error" in answer:
            raise BenchError(f"OpenVINO: {answer['error']}")
        return answer

    def _last_error(self):
        return last_line(self.error_log.read_text(errors="replace"))


class OpenVino:
    """See bench/programs.py for the interface. Used in a `with` statement, which ends its
    drivers."""

    name = "OpenVINO"

    def __init__(self, python, model, log_folder):
        self.python, self.model, self.log_folder = python, model, log_folder
        self.drivers = {}  # number of threads → Driver
        self.facts = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for threads in list(self.drivers):
            self._end(threads)

    def settings(self, row):
        return [""] if row.has_openvino else []

    def describe(self, row, setting):
        return f"{command_line(self._command(row.threads))} <<< '{json.dumps(request_of(row))}'"

    def measure(self, row, setting):
        try:
            answer = self._driver(row.threads).ask(request_of(row), row.timeout_s)
        except BenchError:
            self._end(row.threads)
            raise
        return answer["decode" if row.new else "prefill"]

    def _command(self, threads):
        return [self.python, "-P", DRIVER, self.model, threads]

    def _driver(self, threads):
        if threads not in self.drivers:
            log = self.log_folder / f"openvino-t{threads}.log"
            driver = Driver(self._command(threads), log)
            self.facts.update(driver.about)
            self.drivers[threads] = driver
        return self.drivers[threads]

    def _end(self, threads):
        driver = self.drivers.pop(threads, None)
        if driver:
            driver.close()


def request_of(row):
    return {
        "prompt": row.prompt,
        "new": row.new,
        "depth": row.depth,
        "sequences": row.sequences,
    }
