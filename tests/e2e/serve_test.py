"""kvern serve: what clients get, and that it is what they would get alone."""

import concurrent.futures
import http.client
import json
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import harness
from serving import Server

CHAT = "/v1/chat/completions"


def say(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 12,
            **fields}


class Api(unittest.TestCase):
    """One server for all."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--alias", "smol"))

    def ok(self, path, body):
        status, headers, reply = self.server.post(path, body)
        self.assertEqual(status, 200, reply)
        self.assertIn("x-request-id", headers)
        return reply

    def assert_error(self, status, message, reply, param=None):
        self.assertEqual(reply[0], status, reply)
        error = reply[2]["error"]
        self.assertIn(message, error["message"])
        self.assertEqual(error["param"], param)

    def test_a_chat(self):
        reply = self.ok(CHAT, say("Say hello."))
        self.assertEqual(reply["object"], "chat.completion")
        self.assertEqual(reply["model"], "smol")
        choice = reply["choices"][0]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertGreater(len(choice["message"]["content"]), 2)
        usage = reply["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])

    def test_a_stream_says_the_same(self):
        for path, body in (
            (CHAT, say("Name three colours.", seed=1, temperature=0.8, n=2, logprobs=True)),
            ("/v1/completions", {"prompt": "One two three", "max_tokens": 9, "seed": 3,
                                 "logprobs": 2, "n": 2}),
        ):
            whole = self.ok(path, body)
            _, events = self.server.stream(path, {**body, "stream_options": {"include_usage": True}})
            self.assertEqual(events[-1], "[DONE]")
            self.assertEqual(events[-2]["usage"]["total_tokens"], whole["usage"]["total_tokens"])
            for index, choice in enumerate(whole["choices"]):
                mine = [event["choices"][0] for event in events[:-2]
                        if event["choices"][0]["index"] == index]
                self.assertEqual(mine[-1]["finish_reason"], choice["finish_reason"])
                if path == CHAT:
                    text = "".join((part["delta"].get("content") or "") for part in mine)
                    self.assertEqual(text, choice["message"]["content"])
                    tokens = [token for part in mine if part["logprobs"]
                              for token in part["logprobs"]["content"]]
                    self.assertEqual(tokens, choice["logprobs"]["content"])
                else:
                    self.assertEqual("".join(part["text"] for part in mine), choice["text"])
                    parts = [part["logprobs"] for part in mine if part["logprobs"]]
                    for field in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
                        self.assertEqual(sum((part[field] for part in parts), []),
                                         choice["logprobs"][field])

    def test_who_else_is_served_changes_nothing(self):
        bodies = [say(f"Tell me about the number {i % 8}.", seed=i % 8, temperature=0.9,
                      logprobs=True) for i in range(32)]
        alone = [self.ok(CHAT, {**body, "cache_prompt": False})["choices"] for body in bodies[:8]]
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            together = list(pool.map(lambda body: self.ok(CHAT, body)["choices"], bodies))
        for i, choices in enumerate(together):
            self.assertEqual(choices, alone[i % 8])

    def test_a_receipt_is_verified(self):
        reply = self.ok(CHAT, say("What is a kvern?", temperature=0.7))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "reply.json"
            path.write_text(json.dumps(reply))
            done = subprocess.run([harness.program, "verify", path, "-m", harness.default_model],
                                  capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_prefix_is_found_and_said(self):
        body = say("A sentence that is asked twice. " * 20)
        self.ok(CHAT, body)
        _, headers, reply = self.server.post(CHAT, body)
        cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 100)
        self.assertEqual(int(headers["x-kvern-cached-tokens"]), cached)
        salted = self.ok(CHAT, {**body, "cache_salt": "mine"})
        self.assertEqual(salted["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(salted["choices"], reply["choices"])

    def test_messages_say_what_a_chat_says(self):
        chat = self.ok(CHAT, {**say("Name a river."), "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a river."}]})
        body = {"model": "smol", "max_tokens": 12, "temperature": 0, "system": "Be brief.",
                "messages": [{"role": "user", "content": [{"type": "text", "text": "Name a river."}]}]}
        message = self.ok("/v1/messages", body)
        self.assertEqual(message["content"], [
            {"type": "text", "text": chat["choices"][0]["message"]["content"]}])
        self.assertEqual(message["stop_reason"], "max_tokens")
        usage = message["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"],
                         chat["usage"]["prompt_tokens"])
        counted = self.ok("/v1/messages/count_tokens", {"messages": body["messages"],
                                                        "system": body["system"]})
        self.assertEqual(counted, {"input_tokens": chat["usage"]["prompt_tokens"]})
        _, _, text = self.server.post("/v1/messages", {**body, "stream": True})
        events = [event.split("\n") for event in text.decode().split("\n\n")[:-1]]
        kinds = [name.removeprefix("event: ") for name, _ in events]
        data = [json.loads(line.removeprefix("data: ")) for _, line in events]
        self.assertEqual(kinds, [entry["type"] for entry in data])
        self.assertEqual(kinds[:2] + kinds[-3:], [
            "message_start", "content_block_start", "content_block_stop", "message_delta",
            "message_stop"])
        self.assertEqual("".join(entry["delta"]["text"] for entry in data[2:-3]),
                         message["content"][0]["text"])
        self.assertEqual(data[-2]["delta"]["stop_reason"], "max_tokens")

    def test_responses_say_what_a_chat_says(self):
        chat = self.ok(CHAT, say("Name a lake."))
        body = {"input": "Name a lake.", "temperature": 0, "max_output_tokens": 12}
        whole = self.ok("/v1/responses", body)
        text = whole["output"][0]["content"][0]["text"]
        self.assertEqual(text, chat["choices"][0]["message"]["content"])
        self.assertEqual(whole["usage"]["total_tokens"], chat["usage"]["total_tokens"])
        self.assertEqual(self.ok("/v1/responses/input_tokens", body)["input_tokens"],
                         chat["usage"]["prompt_tokens"])
        _, _, stream = self.server.post("/v1/responses", {**body, "stream": True})
        *events, done = stream.decode().split("\n\n")[:-1]
        self.assertEqual(done, "data: [DONE]")
        data = [json.loads(event.split("\ndata: ", 1)[1]) for event in events]
        self.assertEqual([entry["sequence_number"] for entry in data], list(range(len(data))))
        self.assertEqual("".join(entry["delta"] for entry in data
                                 if entry["type"] == "response.output_text.delta"), text)
        self.assertEqual(data[-1]["response"]["output"][0]["content"][0]["text"], text)

    def test_llama_cpps_completion(self):
        body = {"prompt": "One, two,", "n_predict": 8, "temperature": 0, "n_probs": 2,
                "return_tokens": True}
        whole = self.ok("/completion", body)
        self.assertEqual((whole["tokens_predicted"], whole["stop_type"]), (8, "limit"))
        self.assertEqual(len(whole["completion_probabilities"]), 8)
        timings = whole["timings"]
        self.assertEqual((timings["cache_n"] + timings["prompt_n"], timings["predicted_n"]),
                         (whole["tokens_evaluated"], 8))
        _, events = self.server.stream("/completion", body)
        self.assertEqual("".join(event["content"] for event in events), whole["content"])
        self.assertEqual([event["stop"] for event in events], [False] * (len(events) - 1) + [True])
        self.assertEqual(sum((event["tokens"] for event in events), []), whole["tokens"])
        stopped = self.ok("/completion", {**body, "stop": [","], "n_predict": 50, "logit_bias": [[0, False]]})
        self.assertEqual((stopped["stop_type"], stopped["stopping_word"]), ("word", ","))
        self.assert_error(400, "must be", self.server.post("/completion", {
            "prompt": "x", "n_predict": "many"}), "n_predict")

    def test_llama_cpp_answers_several_prompts_at_once(self):
        body = {"n_predict": 5, "temperature": 0}
        alone = [self.ok("/completion", {**body, "prompt": prompt}) for prompt in ("One, two,", "A B")]
        both = self.ok("/completions", {**body, "prompt": ["One, two,", {"prompt_string": "A B"}]})
        self.assertEqual([part["content"] for part in both], [part["content"] for part in alone])
        self.assert_error(400, "token ids", self.server.post("/completion", {
            **body, "prompt": ["x", [1, -1]]}), "prompt")
        self.assert_error(400, "stream", self.server.post("/completion", {
            **body, "prompt": ["x", "y"], "stream": True}), "prompt")

    def test_the_progress_of_a_prompt_is_told(self):
        body = {**say("Progress is told, step by step. " * 150), "return_progress": True,
                "timings_per_token": True, "max_tokens": 4}
        _, events = self.server.stream(CHAT, body)
        told = [event["prompt_progress"] for event in events[:-1] if "prompt_progress" in event]
        self.assertGreater(len(told), 2)
        self.assertEqual(told[0]["processed"], told[0]["cache"])
        self.assertEqual(told[-1]["processed"], told[-1]["total"])
        self.assertEqual(sorted(entry["processed"] for entry in told),
                         [entry["processed"] for entry in told])
        words = [event for event in events[:-1] if event["choices"][0]["delta"].get("content")]
        self.assertEqual([event["timings"]["predicted_n"] for event in words], [1, 2, 3, 4])

    def test_slots_are_those_that_may_run(self):
        status, _, slots = self.server.get("/slots")
        self.assertEqual((status, len(slots)), (200, 256))
        self.assertEqual({slot["is_processing"] for slot in slots}, {False})

    def test_messages_have_errors_of_their_own(self):
        for status, kind, body in (
            (400, "invalid_request_error", {"messages": [{"role": "user", "content": "x"}]}),
            (400, "invalid_request_error", {"max_tokens": 1, "messages": [{"role": "user"}]}),
            (500, "api_error", {"max_tokens": 1, "messages": [  # llama-server's status for images
                {"role": "user", "content": [{"type": "image"}]}]}),
        ):
            reply = self.server.post("/v1/messages", body)
            self.assertEqual((reply[0], reply[2]["type"]), (status, "error"))
            self.assertEqual(reply[2]["error"]["type"], kind)
            self.assertEqual(reply[2]["request_id"], reply[1]["x-request-id"])

    def test_what_is_wrong_is_named(self):
        post = self.server.post
        self.assert_error(400, "not JSON", post(CHAT, "{"))
        self.assert_error(400, "must be a JSON object", post(CHAT, "[]"))
        self.assert_error(400, "is missing", post(CHAT, {}), "messages")
        self.assert_error(400, "must be", post(CHAT, say("x", temperature="hot")), "temperature")
        self.assert_error(400, "not offered yet", post(CHAT, say("x", tools=[{}])), "tools")
        self.assert_error(400, "must not be empty", post(CHAT, say("x", cache_salt="")), "cache_salt")
        self.assert_error(501, "generates text only", post("/v1/embeddings", {}))
        self.assert_error(404, "no such endpoint", post("/v1/nothing", {}))
        status, headers, reply = self.server.get(CHAT)
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        status, _, reply = post(CHAT, say("word " * 5000))
        self.assertEqual(status, 400)
        self.assertEqual(reply["error"]["type"], "exceed_context_size_error")
        self.assertIn("exceeds the available context size", reply["error"]["message"])
        self.assertGreater(reply["error"]["n_prompt_tokens"], reply["error"]["n_ctx"])
        self.assert_error(400, "stream", post(
            "/v1/completions", {"prompt": "x", "best_of": 2, "stream": True}), "best_of")

    def test_the_model(self):
        _, _, models = self.server.get("/v1/models")
        self.assertEqual([model["id"] for model in models["data"]], ["smol"])
        status, _, props = self.server.get("/props")
        self.assertIn("assistant", props["chat_template"])
        self.assertEqual(self.server.get("/health")[2], {"status": "ok"})

    def test_a_miss_is_explained(self):
        words = "It was a bright cold day in April, and the clocks were striking thirteen. " * 4
        self.ok("/v1/completions", {"prompt": words, "max_tokens": 1})
        told = self.ok("/kv/explain", {"prompt": words.replace("April", "March", 1)})
        found, misses = told["found"], told["misses"]
        self.assertEqual(sum(found.values()) + sum(miss["tokens"] for miss in misses),
                         told["prompt_tokens"])
        other = next(miss for miss in misses if miss["reason"] == "other_token")
        self.assertEqual((other["wanted"]["text"], other["cached"]["text"]), (" March", " April"))
        self.assertEqual(sum(found.values()), other["differs_at"])
        never = self.ok("/kv/explain", {"prompt": words, "cache_salt": "another's"})
        self.assertEqual(sum(never["found"].values()), 0)
        self.assertNotIn("other_namespace", [miss["reason"] for miss in never["misses"]])

    def test_a_request_is_told_of_while_it_lives_and_after(self):
        done = threading.Event()

        def ask():
            self.server.post(CHAT, say("Count to a thousand.", max_tokens=400, ignore_eos=True))
            done.set()

        asking = threading.Thread(target=ask)
        asking.start()
        live = None
        while live is None and not done.is_set():
            _, _, listed = self.server.get("/requests")
            live = next((entry for entry in listed["data"] if entry["max_tokens"] == 400
                         and entry["state"] == "running" and entry["completion_tokens"] > 3), None)
        self.assertIsNotNone(live)
        self.assertEqual(live["endpoint"], CHAT)
        self.assertEqual(live["found_tokens"] + live["computed_tokens"], live["prompt_tokens"])
        status, _, cancelled = self.server.ask("DELETE", f"/requests/{live['id']}")
        self.assertEqual((status, cancelled), (200, {"id": live["id"], "cancelled": True}))
        asking.join()
        _, _, ended = self.server.get(f"/requests/{live['id']}")
        self.assertEqual(ended["state"], "cancelled")
        self.assertLess(ended["completion_tokens"], 400)
        kinds = [event["kind"] for event in ended["events"]]
        self.assertEqual(kinds[0], "queued")
        self.assertEqual(kinds[-1], "finished")
        self.assertIn("first_token", kinds)
        self.assertEqual(ended["prompt"]["missed"], sum(miss["tokens"] for miss in ended["misses"]))
        self.assertEqual(self.server.get("/requests/nobody")[0], 404)
        _, _, again = self.server.ask("DELETE", f"/requests/{live['id']}")
        self.assertFalse(again["cancelled"])

    def test_the_cache_is_shown_and_emptied(self):
        body = say("What lies in the cache? " * 20)
        self.ok(CHAT, body)
        _, _, kv = self.server.get("/kv")
        self.assertEqual(sum(kv["bytes"].values()), kv["budget_bytes"])
        self.assertGreater(kv["own"]["cached_bytes"], 0)
        _, _, tree = self.server.get("/kv/tree?depth=9")
        self.assertTrue(any("What lies" in node["text"] for node in tree["nodes"]))
        _, _, top = self.server.get("/kv/tree?depth=1")
        self.assertTrue(all(node["depth"] == 1 for node in top["nodes"]))
        self.assert_error(400, "from 1 to 64", self.server.get("/kv/tree?depth=x"), "depth")
        dropped = self.ok("/kv/reset", {})
        self.assertGreater(dropped["evicted_blocks"], 10)
        _, _, kv = self.server.get("/kv")
        self.assertEqual(kv["bytes"]["cached"], 0)

    def test_status_says_what_limits(self):
        self.ok(CHAT, say("Something to do.", max_tokens=60))
        _, _, status = self.server.get("/status")
        self.assertIn(status["verdict"]["bound"], ("idle", "compute", "queue", "kv"))
        self.assertEqual(status["config"]["model"], "smol")
        _, _, history = self.server.get("/history?since=0")
        self.assertEqual(history["interval_s"], 5)
        self.assert_error(400, "a time in seconds", self.server.get("/history?since=soon"), "since")

    def test_marked_prompts_are_kept(self):
        text = "A long text that is to be kept. " * 12
        part = {"type": "text", "text": text,
                "prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
        body = say("x", max_tokens=2)
        body["messages"] = [{"role": "user", "content": [part, {"type": "text", "text": "So?"}]}]
        details = self.ok(CHAT, body)["usage"]["prompt_tokens_details"]
        self.assertGreater(details["cache_write_tokens"], 60)
        again = self.ok(CHAT, body)["usage"]["prompt_tokens_details"]
        self.assertEqual(again["cache_write_tokens"], 0)
        self.assertGreater(again["cached_tokens"], 60)
        message = {"max_tokens": 2, "system": [
            {"type": "text", "text": "Another " + text,
             "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
            "messages": [{"role": "user", "content": "So?"}]}
        usage = self.ok("/v1/messages", message)["usage"]
        created = usage["cache_creation_input_tokens"]
        self.assertGreater(created, 60)
        self.assertEqual(usage["cache_creation"], {"ephemeral_5m_input_tokens": 0,
                                                   "ephemeral_1h_input_tokens": created})
        total = usage["input_tokens"] + created + usage["cache_read_input_tokens"]
        usage = self.ok("/v1/messages", message)["usage"]
        self.assertEqual(usage["cache_creation_input_tokens"], 0)
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], total)

    def test_a_prompt_is_computed_ahead(self):
        system = {"role": "system", "content": "You answer about rivers, and nothing else. " * 8}
        made = self.ok("/v1/cache/prompts", {"messages": [system], "ttl_seconds": 60})
        self.assertEqual(made["kept_tokens"], made["tokens"] // 16 * 16)
        self.assertAlmostEqual(made["expires_at"] - time.time(), 60, delta=5)
        body = say("Which is the longest?")
        body["messages"].insert(0, system)
        found = self.ok(CHAT, body)["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(found, made["kept_tokens"])
        path = f"/v1/cache/prompts/{made['id']}"
        longer = self.ok(path, {"ttl_seconds": 3600})
        self.assertEqual((longer["id"], longer["tokens"]), (made["id"], made["tokens"]))
        self.assertGreater(longer["expires_at"], made["expires_at"] + 3000)
        self.assertEqual(self.server.get(path)[2]["expires_at"], longer["expires_at"])
        listed = self.server.get("/v1/cache/prompts")[2]["data"]
        self.assertIn(made["id"], [prompt["id"] for prompt in listed])
        self.assertEqual(self.server.ask("DELETE", path)[2]["deleted"], True)
        self.assertEqual(self.server.get(path)[0], 404)
        self.assert_error(400, "ttl_seconds", self.server.post(
            "/v1/cache/prompts", {"prompt": "x", "ttl_seconds": 0}), "ttl_seconds")

    def test_what_front_ends_send_is_answered(self):
        files = sorted((Path(__file__).parents[1] / "data" / "front_ends").glob("*.json"))
        self.assertGreaterEqual(len(files), 10)
        for file in files:
            with self.subTest(file.stem):
                sent = json.loads(file.read_text())
                status, headers, reply = self.server.post(sent["path"], sent["body"],
                                                          headers=sent["headers"])
                self.assertEqual(status, 200, reply)
                if not sent["body"].get("stream"):
                    self.assertGreater(reply["usage"]["completion_tokens"], 0)
                    continue
                self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
                self.assertNotIn('"error":{', reply.decode())
                self.assertGreater(reply.decode().count("data: "), 3)

    def test_metrics(self):
        def read():
            status, headers, text = self.server.get("/metrics")
            self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, "text/plain"))
            lines = (line.rsplit(" ", 1) for line in text.decode().splitlines() if line[0] != "#")
            return {name.replace('model_name="smol"', "").replace("{}", ""): float(value)
                    for name, value in lines}

        before = read()
        usage = self.ok(CHAT, say("What is counted?", cache_salt="metrics"))["usage"]
        deadline = time.monotonic() + 10
        while (after := read())["vllm:e2e_request_latency_seconds_count"] == before[
                "vllm:e2e_request_latency_seconds_count"] and time.monotonic() < deadline:
            time.sleep(0.01)
        for name, more in (("llamacpp:prompt_tokens_total", usage["prompt_tokens"]),
                           ("llamacpp:tokens_predicted_total", usage["completion_tokens"]),
                           ("kvern_requests_total", 1), ("vllm:time_to_first_token_seconds_count", 1)):
            self.assertEqual(after[name] - before[name], more, name)
        states = [after[f'kvern_kv_bytes{{,state="{state}"}}']
                  for state in ("active", "cached", "reserved", "free")]
        self.assertEqual(sum(states), after["kvern_kv_budget_bytes"])

    def test_text_and_tokens(self):
        tokens = self.ok("/tokenize", {"content": "Hello, wörld"})["tokens"]
        self.assertEqual(self.ok("/detokenize", {"tokens": tokens})["content"], "Hello, wörld")
        pieces = self.ok("/tokenize", {"content": "é", "with_pieces": True})["tokens"]
        self.assertEqual(pieces[0]["piece"], "é")
        prompt = self.ok("/apply-template", say("Hi"))["prompt"]
        self.assertTrue(prompt.endswith("<|im_start|>assistant\n"), prompt)
        counted = self.ok(CHAT + "/input_tokens", say("Hi"))["input_tokens"]
        self.assertEqual(counted, self.ok(CHAT, say("Hi"))["usage"]["prompt_tokens"])

    def test_who_goes_is_served_no_longer(self):
        connection = self.server.connect()
        body = json.dumps(say("Count.", max_tokens=4000, stream=True, ignore_eos=True))
        connection.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n"
                           f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self.assertIn(b"200 OK", connection.recv(4096))
        connection.close()
        # Ended, it holds nothing that the next would have to wait for.
        begin = time.monotonic()
        self.ok(CHAT, say("Hi"))
        self.assertLess(time.monotonic() - begin, 60)


class Keys(unittest.TestCase):
    def test_only_who_has_one_is_served(self):
        with Server("--api-key", "one,two") as server:
            self.assertEqual(server.get("/health")[0], 200)
            for headers in ({}, {"Authorization": "Bearer three"}, {"X-Api-Key": ""}):
                status, _, reply = server.post(CHAT, say("Hi"), headers=headers)
                self.assertEqual((status, reply["error"]["code"]), (401, "invalid_api_key"))
            for headers in ({"Authorization": "Bearer one"}, {"X-Api-Key": "two"}):
                self.assertEqual(server.post(CHAT, say("Hi"), headers=headers)[0], 200)

    def test_tenants_do_not_share_their_prompts(self):
        body = say("What only one of us knows. " * 20)

        def cached(server, key):
            _, _, reply = server.post(CHAT, body, headers={"X-Api-Key": key})
            return reply["usage"]["prompt_tokens_details"]["cached_tokens"]

        for flags, is_shared in (((), False), (("--share-prefixes", "us"), True)):
            with Server("--api-key", "one,two", *flags) as server:
                self.assertEqual(cached(server, "one"), 0)
                self.assertEqual(cached(server, "two") > 0, is_shared)
                self.assertGreater(cached(server, "one"), 0)

    def test_names_of_llama_cpp_say_what_they_mean_here(self):
        note = "q8_0 is stored as q8r: 8 bits, K rotated, a scale for each token and head"
        for kind, count in (("q8_0", 1), ("q8r", 0)):
            with Server("-ctk", kind, "-ctv", kind) as server:
                self.assertEqual(server.log.count(note), count)

    def test_nobody_sees_the_requests_of_others(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("key-a tenant=a\nkey-b tenant=b\n"
                            "key-root tenant=root rights=infer,inspect,admin\n")
            with Server("--api-key-file", keys, "--log-json") as server:
                key = lambda name: {"Authorization": f"Bearer key-{name}"}
                text = "A secret of tenant a, and long enough for a block of the cache. " * 3
                _, headers, _ = server.post(CHAT, say(text), headers=key("a"))
                mine = headers["x-request-id"]
                for name, sees in (("a", True), ("b", False), ("root", True)):
                    _, _, listed = server.get("/requests", headers=key(name))
                    self.assertEqual(mine in [entry["id"] for entry in listed["data"]], sees, name)
                    status, _, _ = server.get(f"/requests/{mine}", headers=key(name))
                    self.assertEqual(status, 200 if sees else 404)
                    _, _, kv = server.get("/kv", headers=key(name))
                    self.assertEqual("bytes" in kv, name == "root")
                    self.assertEqual(kv["own"]["cached_bytes"] > 0, name == "a")
                    _, _, tree = server.get("/kv/tree?depth=64", headers=key(name))
                    self.assertEqual("secret" in json.dumps(tree), name == "a")
                    self.assertEqual(server.get("/history", headers=key(name))[0],
                                     200 if name == "root" else 403)
                _, _, made = server.post("/v1/cache/prompts", {"prompt": "Kept for a. " * 20},
                                         headers=key("a"))
                path = f"/v1/cache/prompts/{made['id']}"
                self.assertEqual(server.post(path, {}, headers=key("b"))[0], 404)
                _, _, longer = server.post(path, {}, headers=key("root"))  # it stays a's
                self.assertGreaterEqual(longer["cached_tokens"], made["kept_tokens"])
                self.assertEqual(server.ask("DELETE", path, headers=key("root"))[0], 200)
                server.post("/kv/reset", {}, headers=key("b"))
                _, _, kv = server.get("/kv", headers=key("a"))
                self.assertGreater(kv["own"]["cached_bytes"], 0)
                server.post("/kv/reset", {}, headers=key("a"))
                _, _, kv = server.get("/kv", headers=key("a"))
                self.assertEqual(kv["own"]["cached_bytes"], 0)
                self.assertNotIn("secret", server.log)
                lines = [json.loads(line) for line in server.log.splitlines()]
                asked = next(line for line in lines if line.get("id") == mine)
                self.assertEqual((asked["event"], asked["tenant"], asked["status"], asked["new"]),
                                 ("request", "a", 200, 12))
                self.assertFalse([line for line in lines if line.get("path") == "/requests"])

    def test_who_asks_too_often_waits(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = Path(folder) / "keys"
            keys.write_text("slow rate=1\nfast\n")
            with Server("--api-key-file", keys) as server:
                ask = lambda key: server.post(CHAT, say("Hi", max_tokens=2),
                                              headers={"Authorization": f"Bearer {key}"})
                self.assertEqual(ask("slow")[0], 200)
                status, headers, reply = ask("slow")
                self.assertEqual((status, reply["error"]["code"]), (429, "rate_limit_exceeded"))
                self.assertTrue(50 < int(headers["Retry-After"]) <= 60, headers)
                self.assertEqual(ask("fast")[0], 200)

    def test_a_file_of_keys_is_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "keys"
            path.write_text("first rights=infer\n")
            with Server("--api-key-file", str(path)) as server:
                def status_of(key):
                    return server.get("/v1/models", headers={"X-Api-Key": key})[0]
                self.assertEqual((status_of("first"), status_of("second")), (200, 401))
                path.write_text("second\n")
                server.signal(signal.SIGHUP)
                server.wait_for("read again")
                self.assertEqual((status_of("first"), status_of("second")), (401, 200))
                path.write_text("third rights=nonsense\n")
                server.signal(signal.SIGHUP)
                server.wait_for("the old ones stay in use")
                self.assertEqual(status_of("second"), 200)

    def test_it_does_not_listen_to_everybody_by_accident(self):
        done = subprocess.run([harness.program, "serve", "--host", "0.0.0.0"], capture_output=True,
                              text=True, timeout=60)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--insecure", done.stderr)


class Lifecycle(unittest.TestCase):
    def test_a_signal_lets_requests_end(self):
        with Server() as server:
            replies = []
            thread = threading.Thread(target=lambda: replies.append(
                server.post(CHAT, say("Count.", max_tokens=100, ignore_eos=True))))
            thread.start()
            time.sleep(0.5)
            server.signal()
            thread.join()
            self.assertEqual(replies[0][0], 200)
            self.assertEqual(replies[0][2]["usage"]["completion_tokens"], 100)
            self.assertEqual(server.process.wait(30), 0)

    def test_a_second_signal_does_not_wait(self):
        with Server() as server:
            thread = threading.Thread(target=lambda: server.post(
                CHAT, say("Count.", max_tokens=4000, ignore_eos=True)))
            thread.start()
            time.sleep(0.5)
            server.signal()
            server.wait_for("stopping")
            time.sleep(0.2)
            server.signal()
            self.assertEqual(server.process.wait(30), 0)
            thread.join()

    def test_it_comes_back_after_a_kill(self):
        body = say("What is a mill?", seed=5, temperature=0.9)
        with Server() as first:
            _, _, before = first.post(CHAT, body)

            def stream():
                try:
                    first.post(CHAT, say("Count.", max_tokens=2000, ignore_eos=True, stream=True))
                except (OSError, http.client.HTTPException):
                    pass  # it is killed meanwhile

            threads = [threading.Thread(target=stream) for _ in range(8)]
            for thread in threads:
                thread.start()
            while first.get("/requests")[2]["data"][0]["state"] != "running":
                time.sleep(0.02)
            first.process.kill()
            first.process.wait()
            for thread in threads:
                thread.join()
            with Server(port=first.port) as second:
                self.assertEqual(second.get("/health")[0], 200)
                self.assertEqual(second.post(CHAT, body)[2]["choices"], before["choices"])

    def test_the_strict_know_one_model(self):
        with Server("--strict-model", "--alias", "a") as server:
            status, _, reply = server.post(CHAT, say("Hi", model="b"))
            self.assertEqual((status, reply["error"]["code"]), (404, "model_not_found"))
            self.assertEqual(server.post(CHAT, say("Hi", model="a"))[0], 200)

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            key, certificate = Path(folder) / "key", Path(folder) / "certificate"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
                            "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
                           check=True, capture_output=True)
            with Server("--ssl-key-file", str(key), "--ssl-cert-file", str(certificate)) as server:
                status, _, reply = server.post(CHAT, say("Hi"), tls=True)
                self.assertEqual(status, 200, reply)
                server.signal(signal.SIGHUP)
                server.wait_for("read again")
                self.assertEqual(server.get("/health", tls=True)[0], 200)
                self.assertEqual(server.raw("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"), b"")


if __name__ == "__main__":
    harness.main()
