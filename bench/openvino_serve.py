"""OpenVINO GenAI on prompts given as tokens. Runs in its own environment:

openvino_serve.py MODEL.gguf PROMPTS.jsonl THREADS cold|warm

PROMPTS.jsonl is what `kvern bench serve --prompts` writes; all prompts have one length. "warm" computes
the prefix that they share before the measurement. Prints one JSON object.
"""

import json
import resource
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def tensors(prompts):
    tokens = np.array(prompts, dtype=np.int64)
    return genai.TokenizedInputs(ov.Tensor(tokens), ov.Tensor(np.ones_like(tokens)))


def main():
    model, path, threads, mode = sys.argv[1:]
    with open(path, encoding="utf-8") as lines:
        requests = [json.loads(line) for line in lines]
    prompts = [request["tokens"] for request in requests if not request["warm_up"]]
    shared = [request["tokens"] for request in requests if request["warm_up"]]
    new_tokens = next(request["new_tokens"] for request in requests if not request["warm_up"])

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 4
    scheduler.enable_prefix_caching = True
    scheduler.max_num_batched_tokens = 2048
    scheduler.max_num_seqs = 64
    pipe = genai.LLMPipeline(model, "CPU", scheduler_config=scheduler,
                             INFERENCE_NUM_THREADS=int(threads))
    config = genai.GenerationConfig()
    config.ignore_eos = True
    config.do_sample = False
    config.max_new_tokens = 4
    for prompt in [prompts[0][-32:], *(shared if mode == "warm" else [])]:
        pipe.generate(tensors([prompt]), config)
    config.max_new_tokens = new_tokens
    begin = time.monotonic()
    replies = pipe.generate(tensors(prompts), config)
    seconds = time.monotonic() - begin
    generated = sum(len(tokens) for tokens in replies.tokens)
    print(json.dumps({"seconds": seconds, "output_tokens": generated,
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
