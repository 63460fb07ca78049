"""The rounds: every program in turn on every row, again and again, so that a machine that gets
slower or faster in between does so for all of them."""

from bench.process import BenchError
from bench.samples import Samples, number


def in_turn(programs, round_index):
    """Each round starts with another program."""
    shift = round_index % len(programs)
    return programs[shift:] + programs[:shift]


def measure_rounds(rows, programs, num_rounds, log):
    samples = Samples()
    for round_index in range(num_rounds):
        log(f"round {round_index + 1} of {num_rounds}")
        for row in rows:
            for program in in_turn(programs, round_index):
                measure_once(samples, row, program, log)
    return samples


def measure_once(samples, row, program, log):
    """One sample of each setting that is still worth it. A failure ends the program's part in this
    row, not the run."""
    for setting in samples.live_settings(row.name, program.name, program.settings(row)):
        what = f"  {row.name:14} {program.name:10} {setting:6}"
        try:
            value = program.measure(row, setting)
        except BenchError as error:
            samples.fail(row.name, program.name, str(error))
            log(f"{what} failed: {error}")
            return
        samples.add(row.name, program.name, setting, value)
        log(f"{what} {number(value):>8} t/s")
