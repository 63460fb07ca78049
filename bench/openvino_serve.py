"""OpenVINO GenAI on a plan of `kvern bench serve --prompts`. Runs in its own environment:

python -m bench.openvino_serve MODEL.gguf PLAN.jsonl THREADS cold|warm

"warm" computes what requests share before the measurement. Prints one JSON object; times in seconds.
"""

import json
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai

from bench.plan import Schedule, read_plan


def greedy(new_tokens):
    config = genai.GenerationConfig()
    config.ignore_eos = True
    config.do_sample = False
    config.max_new_tokens = new_tokens
    return config


class Server:
    def __init__(self, model, threads):
        scheduler = genai.SchedulerConfig()
        scheduler.cache_size = 4
        scheduler.enable_prefix_caching = True
        scheduler.max_num_batched_tokens = 2048
        scheduler.max_num_seqs = 64
        self.pipe = genai.ContinuousBatchingPipeline(
            model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": threads})
        self.num_sent = 0

    def send(self, tokens, new_tokens):
        self.num_sent += 1
        ids = ov.Tensor(np.array([tokens], dtype=np.int64))
        return self.pipe.add_request(self.num_sent, ids, greedy(new_tokens))

    def compute(self, tokens, new_tokens):
        handle = self.send(tokens, new_tokens)
        while self.pipe.has_non_finished_requests():
            self.pipe.step()
        return read_tokens(handle)


def read_tokens(handle):
    found = []
    while handle.can_read():
        for output in handle.read().values():
            found += output.generated_ids
    return found


def run(server, requests):
    schedule, replies, running = Schedule(requests), {}, {}
    ttft = {}
    begin = time.monotonic()
    while schedule.num_left:
        now = time.monotonic() - begin
        for due, index in schedule.take_due(now):
            request = requests[index]
            running[index] = (due, server.send(request.tokens(replies), request.new_tokens))
            replies[index] = []
        if not running:
            time.sleep(schedule.until_next(now, 1.0))
            continue
        server.pipe.step()
        now = time.monotonic() - begin
        for index, (due, handle) in list(running.items()):
            fresh = read_tokens(handle)
            if fresh and not replies[index]:
                ttft[index] = now - due
            replies[index] += fresh
            if len(replies[index]) >= requests[index].new_tokens:
                del running[index]
                schedule.end(index, now)
    return {"seconds": time.monotonic() - begin, "ttft": list(ttft.values()),
            "output_tokens": sum(map(len, replies.values()))}


def main():
    model, path, threads, mode = sys.argv[1:]
    shared, requests = read_plan(path)
    server = Server(model, int(threads))
    server.compute(requests[0].tokens({})[-32:], 4)
    for prefix in shared if mode == "warm" else []:
        server.compute(prefix.tokens({}), prefix.new_tokens)
    print(json.dumps(run(server, requests)))


if __name__ == "__main__":
    main()
