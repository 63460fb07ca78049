"""llama.cpp's server, given prompts as tokens: starts one, and times what it streams."""

import http.client
import json
import queue
import threading
import time

from bench.plan import Schedule
from bench.process import BenchError
from bench.running_server import RunningServer

REPLY_TIMEOUT_S = 1800


class Reply:
    """Times of one streamed reply, in seconds of the monotonic clock."""

    def __init__(self):
        self.sent = time.monotonic()
        self.chunks = []  # when each new token came
        self.tokens = []
        self.error = None
        self.cached_tokens = 0

    @property
    def ttft(self):
        return self.chunks[0] - self.sent


class LlamaServer(RunningServer):
    """With one pool of cells for all slots, or a part for each."""

    def __init__(self, folder, model, slots, context, threads, log, is_unified=True):
        super().__init__("llama-server", [
            folder / "llama-server", "-m", model, "-np", slots, "-c", context, "-t", threads,
            "--kv-unified" if is_unified else "--no-kv-unified", "--no-webui"], log)

    def stream(self, prompt, new_tokens, reply, on_chunk=None, until=None):
        """One completion of exactly new_tokens, greedy; ends early once `until` is set."""
        body = {"prompt": prompt, "n_predict": new_tokens, "temperature": 0, "stream": True,
                "ignore_eos": True, "cache_prompt": True, "return_tokens": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_TIMEOUT_S)
        try:
            connection.request("POST", "/completion", json.dumps(body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise BenchError(f"llama-server: {response.status} {response.read(200)!r}")
            for line in response:
                if not line.startswith(b"data: "):
                    continue
                event = json.loads(line[len(b"data: "):])
                if event.get("stop"):
                    reply.cached_tokens = event.get("timings", {}).get("cache_n", 0)
                    break
                reply.chunks.append(time.monotonic())
                reply.tokens += event["tokens"]
                if on_chunk:
                    on_chunk(reply)
                if until and until.is_set():
                    break
        except (OSError, ValueError, BenchError) as error:
            reply.error = str(error)
        finally:
            connection.close()

    def start(self, prompt, new_tokens, on_chunk=None, until=None):
        """The same on a thread of its own: (thread, reply)."""
        reply = Reply()
        thread = threading.Thread(target=self.stream,
                                  args=(prompt, new_tokens, reply, on_chunk, until))
        thread.start()
        return thread, reply

    def follow(self, requests):
        """Does the work of a plan: (seconds, {index: reply}, {index: TTFT since it was due})."""
        schedule, ended = Schedule(requests), queue.Queue()
        replies, due_at = {}, {}
        begin = time.monotonic()

        def ask(index, prompt):
            self.stream(prompt, requests[index].new_tokens, replies[index])
            ended.put(index)

        while schedule.num_left:
            for due, index in schedule.take_due(time.monotonic() - begin):
                prompt = requests[index].tokens({i: reply.tokens for i, reply in replies.items()})
                replies[index], due_at[index] = Reply(), begin + due
                threading.Thread(target=ask, args=(index, prompt)).start()
            try:
                index = ended.get(timeout=schedule.until_next(time.monotonic() - begin, 1.0))
            except queue.Empty:
                continue
            if replies[index].error or not replies[index].chunks:
                raise BenchError(f"llama-server: {replies[index].error or 'no token came'}")
            schedule.end(index, time.monotonic() - begin)
        seconds = time.monotonic() - begin
        return seconds, replies, {i: replies[i].chunks[0] - due_at[i] for i in replies}

    def ask_together(self, prompts, new_tokens):
        """Sends all at once: (seconds, replies)."""
        begin = time.monotonic()
        started = [self.start(prompt, new_tokens) for prompt in prompts]
        for thread, _ in started:
            thread.join()
        replies = [reply for _, reply in started]
        for reply in replies:
            if reply.error or not reply.chunks:
                raise BenchError(f"llama-server: {reply.error or 'no token came'}")
        return time.monotonic() - begin, replies
