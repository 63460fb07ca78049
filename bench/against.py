"""Measures this tree against another commit, so that later work cannot lose speed unseen.

The other commit is built in a git worktree under build/against. Both programs run in turn; what
counts is the median of the ratios of pairs measured one right after the other. A row that seems to
have lost is measured again with more rounds, and only those decide.
"""

import os
import shutil
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

from bench.peers import MODEL, build_kvern
from bench.process import BenchError, output_of, run_step
from bench.programs import Kvern
from bench.samples import number

FOLDER = Path("build/against")
AGAIN = 3  # times as many rounds


@dataclass(frozen=True)
class Pairs:
    """Tokens per second of the two commits, measured in turn: ours[i] right beside theirs[i]."""

    ours: tuple
    theirs: tuple

    @property
    def ratio(self):
        return statistics.median(a / b for a, b in zip(self.ours, self.theirs))

    def is_loss(self, limit_percent):
        return self.ratio < 1 - limit_percent / 100

    def text(self):
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        return f"{number(ours):>8} t/s, was {number(theirs):>8}: {(self.ratio - 1) * 100:+.1f} %"


def resolve(ref):
    """The full id of a commit."""
    try:
        command = ["git", "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}"]
        return output_of(command, timeout_s=30).strip()
    except BenchError:
        raise BenchError(f"{ref}: no such commit") from None


def build_commit(sha):
    """The program of a commit, in a worktree of its own; built once."""
    folder = FOLDER / sha[:12]
    if not (folder / "CMakeLists.txt").exists():
        shutil.rmtree(folder, ignore_errors=True)
        run_step(["git", "worktree", "prune"])
        run_step(["git", "worktree", "add", "--detach", folder, sha])
    environment = {**os.environ, "CCACHE_BASEDIR": str(folder.resolve())}
    run_step(["cmake", "--preset", "release"], cwd=folder, environment=environment)
    ninja = ["ninja", "-C", "build/release", "kvern"]
    run_step(ninja, cwd=folder, environment=environment)
    return folder / "build" / "release" / "kvern"


def why_not(program, row):
    """None when the program can measure the row: tried on the least work of its kind."""
    least = replace(row, prompt=1, new=0, depth=0)
    if row.sequences > 1:
        least = replace(row, prompt=1, new=1, sequences=2)
    try:
        program.measure(least, "")
    except BenchError as error:
        return str(error)
    return None


def measurable_rows(rows, theirs, ref, log):
    """The rows that the other commit can be compared in. One without `kvern bench` has none."""
    reasons = {row: why_not(theirs, row) for row in rows}
    left_out = [row for row in rows if reasons[row]]
    if left_out == rows:
        raise BenchError(f"{ref} cannot measure, has it `kvern bench`? {reasons[rows[0]]}")
    for row in left_out:
        log(f"{row.name:12} left out, {ref} cannot measure it: {reasons[row]}")
    return [row for row in rows if not reasons[row]]


def measure_pairs(row, ours, theirs, num_rounds):
    pairs = []
    for round_index in range(num_rounds):
        order = (ours, theirs) if round_index % 2 == 0 else (theirs, ours)
        speed = {program: program.measure(row, "") for program in order}
        pairs.append((speed[ours], speed[theirs]))
    return Pairs(*map(tuple, zip(*pairs)))


def check_row(row, measure, num_rounds, limit_percent, log):
    """Whether the row has lost more than the limit. `measure(row, num_rounds)` gives Pairs."""
    pairs = measure(row, num_rounds)
    log(f"{row.name:12} {pairs.text()}")
    if not pairs.is_loss(limit_percent):
        return False
    pairs = measure(row, AGAIN * num_rounds)
    log(f"{row.name:12} {pairs.text()} (measured again, {AGAIN * num_rounds} rounds)")
    return pairs.is_loss(limit_percent)


@dataclass(frozen=True)
class Options:
    ref: str
    rows: list
    num_rounds: int
    limit_percent: float
    kvern: Path | None  # a program of this tree already built


def run(options, log):
    """The names of the rows that lost more than the limit."""
    sha = resolve(options.ref)
    models = {"": MODEL}
    ours = Kvern(options.kvern or build_kvern(), models)
    theirs = Kvern(build_commit(sha), models)
    rows = measurable_rows(options.rows, theirs, options.ref, log)

    def measure(row, num_rounds):
        return measure_pairs(row, ours, theirs, num_rounds)

    log(f"This tree against {options.ref} ({sha[:12]}), {options.num_rounds} rounds")
    return [
        row.name
        for row in rows
        if check_row(row, measure, options.num_rounds, options.limit_percent, log)
    ]
