"""Samples of one comparison, and what they say: medians, ranges, best settings, ratios."""

import statistics
from dataclasses import dataclass

DROP_BELOW = 0.8


@dataclass(frozen=True)
class Summary:
    """Tokens per second of a program on a row, at its best setting."""

    setting: str
    values: tuple

    @property
    def median(self):
        return statistics.median(self.values)

    def text(self):
        """As "123.4 (120.1–125.0)", or without the range when there is one value."""
        if len(self.values) == 1:
            return number(self.median)
        return f"{number(self.median)} ({number(min(self.values))}–{number(max(self.values))})"


def number(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


class Samples:
    """values[row name][program name][setting] is a list of tokens per second, one for each round;
    errors[row name, program name] is why a program has no more of them."""

    def __init__(self):
        self.values = {}
        self.errors = {}

    def add(self, row, program, setting, value):
        settings = self.values.setdefault(row, {}).setdefault(program, {})
        settings.setdefault(setting, []).append(value)

    def fail(self, row, program, error):
        self.errors[row, program] = error

    def live_settings(self, row, program, settings):
        """The settings still worth measuring: none after an error, and none whose best sample is
        under DROP_BELOW of the best setting's worst."""
        if (row, program) in self.errors:
            return []
        best = self.best(row, program)
        if best is None:
            return settings
        taken = self.values[row][program]
        least = DROP_BELOW * min(best.values)
        return [setting for setting in settings if max(taken.get(setting, [least])) >= least]

    def best(self, row, program):
        """The setting with the highest median, or None when nothing was measured."""
        settings = self.values.get(row, {}).get(program, {})
        summaries = [Summary(setting, tuple(values)) for setting, values in settings.items()]
        return max(summaries, key=lambda summary: summary.median, default=None)

    def ratio(self, row, ours, theirs):
        """Of medians, each program at its best setting; None when one of them has no sample."""
        a, b = self.best(row, ours), self.best(row, theirs)
        return a.median / b.median if a and b else None
