"""kvern serve under the clients that people use: OpenAI's, Anthropic's and LiteLLM.

Run by scripts/test-clients: clients_test.py KVERN DEFAULT_MODEL TINY_MODELS_DIR
"""

import asyncio
import os
import socket
import sys
import threading
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
warnings.simplefilter("ignore")  # the clients' own, by the dozen
import harness  # noqa: E402
from serving import Server  # noqa: E402

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is fetched
import anthropic  # noqa: E402
import litellm  # noqa: E402
import openai  # noqa: E402

KEY = "a-key-for-tests"
ASK = [{"role": "user", "content": "Name three colours."}]
GREEDY = {"model": "smol", "temperature": 0, "max_tokens": 16}


class Served(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server("--alias", "smol", "--api-key", KEY))
        cls.url = f"http://127.0.0.1:{cls.server.port}"


class OpenAi(Served):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.enterClassContext(openai.OpenAI(base_url=cls.url + "/v1", api_key=KEY))

    def chat(self, **fields):
        return self.client.chat.completions.create(**{**GREEDY, "messages": ASK, **fields})

    def test_a_chat_and_its_stream(self):
        whole = self.chat(logprobs=True, top_logprobs=2)
        self.assertEqual(whole.choices[0].finish_reason, "length")
        self.assertEqual(len(whole.choices[0].logprobs.content), 16)
        self.assertEqual(whole.usage.completion_tokens, 16)
        self.assertIn("digest", whole.model_extra["kvern_receipt"]["answer"])
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.total_tokens, whole.usage.total_tokens)

    def test_choices_stops_and_seeds(self):
        several = self.chat(n=3, temperature=1.0, seed=7)
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2])
        again = self.chat(n=3, temperature=1.0, seed=7)
        self.assertEqual([c.message.content for c in several.choices],
                         [c.message.content for c in again.choices])
        stopped = self.chat(stop=[","], max_tokens=64)
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertNotIn(",", stopped.choices[0].message.content)

    def test_fields_of_newer_clients(self):
        reply = self.client.chat.completions.create(
            model="whatever", max_completion_tokens=4, logit_bias={"5": -100}, user="u",
            presence_penalty=0.1, frequency_penalty=0.1, store=False, metadata={"a": "b"},
            messages=[{"role": "developer", "content": "Be brief."},
                      {"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
        self.assertEqual(reply.usage.completion_tokens, 4)

    def test_a_completion(self):
        reply = self.client.completions.create(model="smol", prompt="One, two,", max_tokens=5,
                                               temperature=0, logprobs=1)
        self.assertEqual(len(reply.choices[0].logprobs.tokens), 5)
        stream = self.client.completions.create(model="smol", prompt="One, two,", max_tokens=5,
                                                temperature=0, stream=True)
        self.assertEqual("".join(part.choices[0].text for part in stream), reply.choices[0].text)

    def test_many_at_once(self):
        async def ask_all():
            async with openai.AsyncOpenAI(base_url=self.url + "/v1", api_key=KEY) as client:
                asked = [client.chat.completions.create(**GREEDY, messages=ASK) for _ in range(16)]
                return await asyncio.gather(*asked)

        texts = {reply.choices[0].message.content for reply in asyncio.run(ask_all())}
        self.assertEqual(texts, {self.chat().choices[0].message.content})

    def test_errors_are_those_of_the_client(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=-1)
        self.assertEqual(caught.exception.body["param"], "temperature")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.url + "/v1", api_key="wrong").models.list()
        with self.assertRaises(openai.NotFoundError):
            self.client.get("/nothing", cast_to=object)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "word " * 6000}])
        self.assertEqual(caught.exception.body["type"], "exceed_context_size_error")
        with self.assertRaises(openai.APIStatusError) as caught:
            self.client.embeddings.create(model="smol", input="x")
        self.assertEqual(caught.exception.status_code, 501)

    def test_responses(self):
        asked = {"model": "smol", "temperature": 0, "max_output_tokens": 4}
        whole = self.client.responses.create(**asked, instructions="Be brief.", input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Name three colours."}]}])
        self.assertEqual((whole.status, whole.incomplete_details.reason),
                         ("incomplete", "max_output_tokens"))
        self.assertEqual(whole.usage.output_tokens, 4)
        with self.client.responses.stream(**asked, instructions="Be brief.",
                                          input="Name three colours.") as stream:
            events = list(stream)
        text = "".join(event.delta for event in events
                       if event.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        goes_on = self.client.responses.create(**asked, input=[
            {"role": "user", "content": "Hi"}, *whole.output, {"role": "user", "content": "More"}])
        self.assertEqual(goes_on.usage.output_tokens, 4)
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(**asked, input="x", previous_response_id="resp_1")
        self.assertEqual(caught.exception.body["param"], "previous_response_id")

    def test_models(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["smol"])

    def test_a_stream_that_is_left(self):
        stream = self.chat(stream=True, max_tokens=3000)
        next(iter(stream))
        stream.close()
        self.assertEqual(self.chat().usage.completion_tokens, 16)

    def test_a_client_that_waits_no_longer(self):
        with self.assertRaises(openai.APITimeoutError):
            self.client.with_options(timeout=0.3, max_retries=0).chat.completions.create(
                model="smol", messages=ASK, max_tokens=3000, extra_body={"ignore_eos": True})
        self.assertEqual(self.chat().usage.completion_tokens, 16)

    def test_what_can_be_tried_again_is(self):
        """A proxy that refuses the first two: the client waits as it is told and tries again."""
        refused = (b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 2\r\n"
                   b"Connection: close\r\n\r\n{}")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def proxy():
                for attempt in range(3):
                    connection, _ = listener.accept()
                    with connection:
                        request = connection.recv(65536)
                        head, _, body = request.partition(b"\r\n\r\n")
                        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                        while len(body) < length:
                            body += connection.recv(65536)
                        if attempt < 2:
                            connection.sendall(refused)
                            continue
                        head = head.replace(b"Connection: keep-alive", b"Connection: close")
                        connection.sendall(self.server.raw(head + b"\r\n\r\n" + body))

            thread = threading.Thread(target=proxy)
            thread.start()
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            with openai.OpenAI(base_url=url, api_key=KEY, max_retries=2) as client:
                reply = client.chat.completions.create(**GREEDY, messages=ASK)
            thread.join()
        self.assertEqual(reply.usage.completion_tokens, 16)


class Anthropic(Served):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = cls.enterClassContext(anthropic.Anthropic(base_url=cls.url, api_key=KEY))

    def say(self, **fields):
        return self.client.messages.create(**{
            "model": "smol", "max_tokens": 16, "messages": ASK, "extra_body": {"temperature": 0},
            **fields})

    def test_a_message_and_its_stream(self):
        whole = self.say(system="Be brief.", max_tokens=4)
        self.assertEqual(whole.stop_reason, "max_tokens")
        self.assertEqual(whole.usage.output_tokens, 4)
        with self.client.messages.stream(model="smol", max_tokens=4, messages=ASK,
                                         system="Be brief.",
                                         extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.stop_reason, "max_tokens")
        self.assertEqual(final.usage.output_tokens, 4)

    def test_stops(self):
        stopped = self.say(stop_sequences=[","], max_tokens=64)
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", ","))

    def test_tokens_are_counted(self):
        counted = self.client.messages.count_tokens(model="smol", messages=ASK)
        usage = self.say().usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)

    def test_blocks_and_tool_history(self):
        reply = self.say(messages=[
            {"role": "user", "content": [{"type": "text", "text": "2 + 2?",
                                          "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t", "name": "add", "input": {"a": 2, "b": 2}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "4"}]}])
        self.assertGreater(reply.usage.output_tokens, 0)

    def test_errors_are_those_of_the_client(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.say(messages=[{"role": "robot", "content": "Hi"}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.AuthenticationError):
            anthropic.Anthropic(base_url=self.url, api_key="wrong").messages.create(
                model="smol", max_tokens=1, messages=ASK)

    def test_many_at_once(self):
        async def ask_all():
            async with anthropic.AsyncAnthropic(base_url=self.url, api_key=KEY) as client:
                return await asyncio.gather(*[
                    client.messages.create(model="smol", max_tokens=8, messages=ASK,
                                           extra_body={"temperature": 0}) for _ in range(8)])

        self.assertEqual(len({reply.content[0].text for reply in asyncio.run(ask_all())}), 1)


class LiteLlm(Served):
    def test_as_openai_and_as_anthropic(self):
        texts = []
        for model, url in (("openai/smol", self.url + "/v1"), ("anthropic/smol", self.url)):
            with self.subTest(model):
                asked = {"model": model, "api_base": url, "api_key": KEY, "messages": ASK,
                         "max_tokens": 16, "temperature": 0}
                reply = litellm.completion(**asked)
                texts.append(reply.choices[0].message.content)
                parts = litellm.completion(**asked, stream=True)
                self.assertEqual("".join(part.choices[0].delta.content or "" for part in parts),
                                 texts[-1])
        self.assertEqual(texts[0], texts[1])

    def test_a_prompt_that_is_too_long_is_known_as_such(self):
        with self.assertRaises(litellm.ContextWindowExceededError):
            litellm.completion(model="openai/smol", api_base=self.url + "/v1", api_key=KEY,
                               messages=[{"role": "user", "content": "word " * 6000}])


if __name__ == "__main__":
    harness.main()
