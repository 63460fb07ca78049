"""Runs programs with a time limit, and makes every way of failing one line."""

import shlex
import subprocess
import sys


class BenchError(Exception):
    """Something the user can act on, in one line."""


def command_line(command):
    """What a user would type."""
    return shlex.join(str(part) for part in command)


def last_line(text):
    """The last line that says something: where programs put their error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def output_of(command, timeout_s):
    """Standard output of a program that must succeed within timeout_s seconds."""
    name = str(command[0])
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
        )
    except FileNotFoundError:
        raise BenchError(f"{name}: no such program") from None
    except PermissionError:
        raise BenchError(f"{name}: not a program that may be run") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"{name}: not done after {timeout_s} s") from None
    if done.returncode != 0:
        raise BenchError(f"{name}: exit code {done.returncode}: {last_line(done.stderr)}")
    return done.stdout


def run_step(command, cwd=None, environment=None):
    """Runs a build step. All that it says goes to standard error, for the user to see."""
    _step(command, sys.stderr, cwd, environment)


def result_of_step(command):
    """The standard output of a build step; the user sees the rest."""
    return _step(command, subprocess.PIPE, cwd=None, environment=None)


def _step(command, output, cwd, environment):
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            encoding="utf-8",
            cwd=cwd,
            env=environment,
        )
    except FileNotFoundError:
        raise BenchError(f"{command[0]}: no such program") from None
    if done.returncode != 0:
        raise BenchError(f"failed, see above: {command_line(command)}")
    return done.stdout
