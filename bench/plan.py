"""A plan of `kvern bench serve --prompts`: the work of a workload, for other servers to do."""

import heapq
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    prompt: list  # pieces: a list of tokens, or {"reply_of": request}
    new_tokens: int
    after: tuple = ()  # requests that must have ended
    delay_s: float = 0.0  # since then, or since the start

    def tokens(self, replies):
        """The prompt, once the requests that it quotes have been answered."""
        tokens = []
        for piece in self.prompt:
            tokens += replies[piece["reply_of"]] if isinstance(piece, dict) else piece
        return tokens


def read_plan(path):
    """(prefixes to compute before, requests in their order)"""
    shared, requests = [], []
    with open(path, encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            request = Request(line["prompt"], line["new_tokens"],
                              tuple(trigger["request"] for trigger in line["after"]),
                              line["delay_us"] / 1e6)
            (shared if line["warm_up"] else requests).append(request)
    return shared, requests


class Schedule:
    """Which requests are due when. Times are seconds since the start."""

    def __init__(self, requests):
        self.requests = requests
        self.waits_for = [set(request.after) for request in requests]
        self.waiters = [[] for _ in requests]
        for index, request in enumerate(requests):
            for earlier in request.after:
                self.waiters[earlier].append(index)
        self.due = [(request.delay_s, index) for index, request in enumerate(requests)
                    if not request.after]
        heapq.heapify(self.due)
        self.num_left = len(requests)

    def take_due(self, now):
        """[(when it was due, index)]"""
        taken = []
        while self.due and self.due[0][0] <= now:
            taken.append(heapq.heappop(self.due))
        return taken

    def until_next(self, now, longest):
        """How long nothing is due unless a request ends."""
        return max(0.0, min(longest, self.due[0][0] - now)) if self.due else longest

    def end(self, index, now):
        self.num_left -= 1
        for waiter in self.waiters[index]:
            self.waits_for[waiter].discard(index)
            if not self.waits_for[waiter]:
                heapq.heappush(self.due, (now + self.requests[waiter].delay_s, waiter))
