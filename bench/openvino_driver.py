"""Runs OpenVINO GenAI for bench/openvino_peer.py, in the Python environment that has that package.

    openvino_driver.py MODEL.gguf THREADS

Loads the model once, prints one line of JSON that describes the pipeline, and then answers each
line of standard input, a JSON object, with one line of JSON:

    {"prompt": 512, "new": 0, "depth": 0, "sequences": 1}  →  {"prefill": t/s, "decode": null}

The measures are those of llama-bench: prefill of `prompt` tokens, and decode of `new` tokens, both
behind `depth` tokens that are not timed; with `sequences` above 1, decode of all of them together
behind `prompt` tokens each, which are not timed. Prompts are random token ids, a new draw for each
request, so that the pipeline's prefix cache finds only what is meant to be found: the depth.

The pipeline has its default settings but for the number of threads. The first request of a kind is
measured twice and answered with the second: the first one makes kernels and grows the cache.
"""

import json
import os
import sys
import time

import numpy as np
import openvino
import openvino_genai

FIRST_ID, LAST_ID = 1000, 40000  # ordinary tokens in any of the vocabularies


class Pipeline:
    def __init__(self, model, threads):
        self.generator = np.random.default_rng(1)
        self.warm = []  # requests measured before
        self.pipe = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)

    def random_ids(self, sequences, length):
        return self.generator.integers(FIRST_ID, LAST_ID, (sequences, length), dtype=np.int64)

    def generate(self, ids, new):
        """What the library measured while it read `ids` and made `new` tokens for each row."""
        config = openvino_genai.GenerationConfig()
        config.do_sample = False
        config.ignore_eos = True
        config.max_new_tokens = new
        mask = np.ones_like(ids)
        inputs = openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(mask))
        metrics = self.pipe.generate(inputs, config).perf_metrics
        if metrics.get_num_generated_tokens() != new * ids.shape[0]:
            raise RuntimeError(f"made {metrics.get_num_generated_tokens()} tokens, not {new}")
        return metrics

    def prefill(self, prompt, depth):
        ids = self.random_ids(1, depth + prompt)
        if depth:
            self.generate(np.ascontiguousarray(ids[:, :depth]), 1)
        return prompt / (self.generate(ids, 1).get_ttft().mean / 1e3)

    def decode(self, new, context, sequences):
        """The first new token of each sequence comes from its prompt, so its time is the start."""
        metrics = self.generate(self.random_ids(sequences, max(context, 1)), new + 1)
        times_ms = list(metrics.raw_metrics.m_new_token_times)
        if len(times_ms) != new + 1:
            raise RuntimeError(f"decoded in {len(times_ms)} steps, not {new + 1}: not all together")
        return sequences * new / ((times_ms[-1] - times_ms[0]) / 1e3)

    def answer(self, request):
        if request not in self.warm:
            self.measure(request)
            self.warm.append(request)
        return self.measure(request)

    def measure(self, request):
        prompt, new, depth = request["prompt"], request["new"], request["depth"]
        sequences = request["sequences"]
        if sequences > 1:
            return {"prefill": None, "decode": self.decode(new, prompt, sequences)}
        return {
            "prefill": self.prefill(prompt, depth) if prompt else None,
            "decode": self.decode(new, depth, 1) if new else None,
        }


def take_standard_output():
    """The stream for answers. What the library prints goes to standard error from here on."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def main():
    model, threads = sys.argv[1], int(sys.argv[2])
    answers = take_standard_output()

    def answer(value):
        print(json.dumps(value), file=answers, flush=True)

    start = time.monotonic()
    pipeline = Pipeline(model, threads)
    load_s = time.monotonic() - start
    core = openvino.Core()
    answer({
        "version": openvino_genai.__version__,
        "load_s": round(load_s, 1),
        "kv_type": core.get_property("CPU", "KV_CACHE_PRECISION").get_type_name(),
    })
    for line in sys.stdin:
        try:
            answer(pipeline.answer(json.loads(line)))
        except Exception as error:  # whatever the library throws; the other side reports it
            answer({"error": " ".join(str(error).split())})


if __name__ == "__main__":
    main()
