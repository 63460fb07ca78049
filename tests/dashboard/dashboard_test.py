"""The dashboard of kvern serve in a real browser, on the real model.

Run by scripts/test-dashboard: dashboard_test.py KVERN DEFAULT_MODEL TINY_MODELS_DIR. Pictures go to
the folder KVERN_PICTURES.
"""

import hashlib
import http.client
import json
import os
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
import snapshot  # noqa: E402
from browser import Browser  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from serving import Server  # noqa: E402

KEY = "a-key-for-tests"
PICTURES = Path(os.environ.get("KVERN_PICTURES", "."))
MAX_PICTURE_BYTES = 200_000
STORY = "Once upon a time there was a small fox who lived at the edge of a great forest. "


class Asker(threading.Thread):
    """A client that reads a long answer; `status` is set when its connection has ended."""

    def __init__(self, server, prompt, max_tokens, key=KEY):
        super().__init__(daemon=True)
        self.server = server
        self.headers = {"Authorization": f"Bearer {key}"}
        self.body = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True,
                     "temperature": 0}
        self.status = None
        self.start()

    def run(self):
        try:
            self.status = self.server.post("/v1/completions", self.body, headers=self.headers)[0]
        except (OSError, http.client.HTTPException):
            self.status = "cut"


class DashboardTest(unittest.TestCase):
    def setUp(self):
        self.browser = self.enterContext(Browser())

    def serve(self, *flags):
        return self.enterContext(Server("--alias", "SmolLM2-135M-Instruct", *flags))

    def open(self, server):
        self.origin = f"http://127.0.0.1:{server.port}"
        self.browser.driver.get(self.origin + "/")

    def wait_for_status(self):
        self.browser.wait("figures", lambda: self.browser.run(
            "return document.getElementById('page').dataset.requests"))

    def check_clean(self, allowed=()):
        """No console error but those that a test provokes, and no request to anybody else."""
        problems = [text for text in self.browser.problems()
                    if not any(part in text for part in allowed)]
        self.assertEqual(problems, [])
        foreign = [url for url in self.browser.requested()
                   if not url.startswith((self.origin + "/", "data:", "chrome:", "about:"))]
        self.assertEqual(foreign, [])

    def check_accessible(self, what):
        self.assertEqual(self.browser.axe_violations(), [], what)

    def picture(self, name, height=None):
        path = PICTURES / f"dashboard-{name}.png"
        self.browser.screenshot(path, height)
        self.assertLess(path.stat().st_size, MAX_PICTURE_BYTES, name)

    def say(self, text):
        draft = self.browser.find("#draft")
        draft.send_keys(text)
        draft.send_keys(Keys.ENTER)

    def wait_for_reply(self, number):
        """Until so many replies have said what they used."""
        self.browser.wait("a reply", lambda: len(self.browser.all(".message .usage")) == number and
                          not self.browser.find("#stop").is_displayed())


class Chat(DashboardTest):
    def test_a_chat_and_an_edit_that_keeps_the_prefix(self):
        server = self.serve()
        self.open(server)
        self.wait_for_status()
        self.browser.run("document.getElementById('temperature').value = 0;"
                         "document.getElementById('max-tokens').value = 60;")
        self.say("Name three colours of the rainbow, as a list.")
        self.wait_for_reply(1)
        self.say("Which of them has the longest waves?")
        self.wait_for_reply(2)
        usage = self.usage(-1)
        # The first question was there, and what the model had said.
        first = self.browser.find(".message.user .reuse")
        self.assertIn("all ", first.text)
        before = int(first.get_attribute("data-total"))
        self.assertGreater(usage["cached"], before)
        self.check_usage_is_the_servers(server, usage)

        self.browser.all(".message.user .edit")[1].click()
        area = self.browser.find(".message.user textarea")
        self.assertEqual(self.browser.run("return document.activeElement.tagName"), "TEXTAREA")
        area.send_keys(Keys.CONTROL, "a")
        area.send_keys("Which of them do bees see?")
        area.send_keys(Keys.ENTER)
        self.browser.wait_for_text(".message:last-child .usage", "Kept prefix")
        self.wait_for_reply(2)
        edited = self.usage(-1)
        # All of the conversation before the edit; of the edited message as far as it is equal.
        self.assertGreater(edited["cached"], before)
        self.assertLess(edited["cached"], edited["prompt"])
        self.assertIn(f"{edited['cached']} of {edited['prompt']} tokens",
                      self.browser.text(".message:last-child .usage"))
        self.check_usage_is_the_servers(server, edited)
        self.check_tokens(edited)
        self.browser.run("document.querySelector('.message:last-child details').open = false")
        self.browser.wait("figures", lambda: "–" not in self.browser.text(".tile"))
        self.picture("chat")
        self.check_accessible("a chat")

        # What was edited away is among the earlier chats.
        earlier = self.browser.run(
            "return [...document.getElementById('earlier').options].map((o) => o.text)")
        self.assertEqual(len(earlier), 2)
        self.check_copy()
        self.browser.driver.refresh()
        self.assertEqual(len(self.browser.all(".message")), 4)  # the tab remembers
        self.check_clean()

    def usage(self, index):
        element = self.browser.all(".message .usage")[index]
        return {name: int(element.get_attribute(f"data-{name}")) for name in ("prompt", "cached")}

    def check_usage_is_the_servers(self, server, usage):
        newest = next(request for request in server.get("/requests")[2]["data"]
                      if request["state"] == "finished")
        self.assertEqual(usage, {"prompt": newest["prompt_tokens"],
                                 "cached": newest["found_tokens"]})

    def check_tokens(self, usage):
        self.browser.find(".message:last-child summary").click()
        self.browser.wait("tokens", lambda: self.browser.all(".message:last-child .tokens span"))
        self.assertEqual(len(self.browser.all(".tokens span")), usage["prompt"])
        self.assertEqual(len(self.browser.all(".tokens .reused")), usage["cached"])

    def check_copy(self):
        self.browser.devtools("Browser.grantPermissions", origin=self.origin,
                              permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        self.browser.all(".message.user .link:last-child")[1].click()
        self.browser.wait_for_text(".message:nth-child(3) .actions", "Copied")
        self.assertEqual(self.browser.run("return navigator.clipboard.readText()"),
                         "Which of them do bees see?")

    def test_a_reply_is_stopped(self):
        server = self.serve()
        self.open(server)
        self.wait_for_status()
        self.browser.run("document.getElementById('max-tokens').value = 3000")
        self.say("Write a very long story about a fox, with many chapters.")
        self.browser.wait("words", lambda: self.browser.text(".message.assistant .body"))
        self.browser.find("#stop").click()
        self.browser.wait_for_text("#chat-status", "Stopped")
        self.browser.wait("the end", lambda: all(
            request["state"] in snapshot.OVER for request in server.get("/requests")[2]["data"]))
        self.assertTrue(self.browser.find("#send").is_displayed())
        self.check_clean()

    def test_what_a_message_says_stays_text(self):
        self.open(self.serve())
        self.browser.run("window.kvernReply = arguments[0]", """# Title

### Far below

Some **bold**, *italic*, `code <b>`, snake_case_name, 2 * 3 * 4 and <img src=x onerror=alert(1)>.
A [good link](https://example.org/a) and [a bad one](javascript:alert(1)).
![picture](https://example.org/pixel.png) <script>alert(1)</script>

1. one
   - inner
2. two

> quoted

```python
print("<b>")
```
""")
        self.say("Hello")
        self.browser.wait("a list", lambda: self.browser.all(".body ol li ul li"))
        count = "return document.querySelectorAll(arguments[0]).length"
        for selector, number in ((".body img", 0), (".body script", 0), (".body strong", 1),
                                 (".body em", 1), (".body a", 2), (".body blockquote", 1),
                                 (".body ol > li", 2), (".body pre code", 1), (".body h3", 1),
                                 (".body h4", 1)):
            self.assertEqual(self.browser.run(count, selector), number, selector)
        for link in self.browser.all(".body a"):
            self.assertRegex(link.get_attribute("href"), r"\Ahttps://example\.org/")
            self.assertIn("noopener", link.get_attribute("rel"))
        text = self.browser.text(".message.assistant .body")
        for part in ("<img src=x onerror=alert(1)>", "[a bad one](javascript:alert(1))",
                     "snake_case_name", "2 * 3 * 4", 'print("<b>")'):
            self.assertIn(part, text)
        self.check_accessible("markdown")
        self.check_clean()


class Overview(DashboardTest):
    def test_a_full_pool_says_who_waits_for_what(self):
        server = self.serve("--kv-tokens", "1536", "-c", "1024", "--max-running", "4")
        self.open(server)
        # Repeated and pushed out, so that something is computed again.
        for turn in range(6):
            server.post("/v1/completions", {"prompt": f"Tale {turn % 3}. " + STORY * 35,
                                            "max_tokens": 40, "temperature": 0})
        askers = [Asker(server, f"Number {i}. {STORY * 20}", 600) for i in range(12)]
        self.browser.wait_for_text("#live-rows", "Waiting for memory")
        self.browser.wait_for_text("#verdict-text", "KV-bound")
        read = snapshot.check(self, self.browser)
        waiting = [row["text"] for row in read["rows"] if "Waiting for memory" in row["text"]]
        self.assertTrue(waiting)
        self.assertIn("more KV memory", read["verdict"][1])
        self.browser.wait("three points of a chart", lambda: self.browser.run(
            "return (document.querySelector('[data-chart=memory] path')?.getAttribute('d') ?? '')"
            ".split('L').length >= 6"))
        self.assertIn("Tale", self.browser.text("#recomputed"))
        self.take_pictures()
        snapshot.check(self, self.browser)
        self.check_details()
        self.check_clean()
        for asker in askers:
            asker.join(120)
            self.assertEqual(asker.status, 200)
        self.browser.wait("an idle server", lambda: not self.browser.all("#live-rows tr"))
        snapshot.check(self, self.browser)

    def take_pictures(self):
        for scheme in ("light", "dark"):
            self.browser.show_as(1280, 1180, scheme)
            self.check_accessible(scheme)
            self.picture(scheme)
        for scheme in ("light", "dark"):
            self.browser.show_as(390, 844, scheme)
            self.check_accessible(f"narrow, {scheme}")
            wide = self.browser.run("return document.documentElement.scrollWidth")
            self.assertLessEqual(wide, 390)
        self.picture("narrow", 1700)
        self.browser.show_as(1280, 900)

    def check_details(self):
        button = self.browser.find("#live-rows button.link")
        button.send_keys(Keys.ENTER)
        self.browser.wait_for_text(".detail", "What happened")
        self.assertEqual(button.get_attribute("aria-expanded"), "true")
        self.check_accessible("details")
        button.send_keys(Keys.ENTER)
        self.assertEqual(self.browser.all(".detail"), [])

    def test_a_request_is_cancelled(self):
        server = self.serve()
        self.open(server)
        asker = Asker(server, STORY, 3000)
        button = self.browser.wait("its button", lambda: next(
            iter(self.browser.all("#live-rows .cancel")), None))
        identity = self.browser.find("#live-rows tr").get_attribute("data-id")
        button.send_keys(Keys.ENTER)
        self.browser.wait("an empty table", lambda: not self.browser.all("#live-rows tr"))
        asker.join(30)
        self.assertIsNotNone(asker.status)
        self.assertEqual(server.get(f"/requests/{identity}")[2]["state"], "cancelled")
        self.browser.find("#ended summary").click()
        self.browser.wait_for_text("#ended-rows", "Cancelled")
        self.browser.wait("no active memory", lambda: server.get("/kv")[2]["bytes"]["active"] == 0)
        self.check_accessible("a table of what ended")
        self.check_clean()

    def test_it_is_silent_while_it_is_hidden(self):
        self.open(self.serve())
        self.wait_for_status()
        hide = """Object.defineProperty(document, 'hidden',
                                        {configurable: true, get: () => arguments[0]});
                  document.dispatchEvent(new Event('visibilitychange'));"""
        self.browser.run(hide.replace("arguments[0]", "true"))
        time.sleep(0.5)  # what was on its way
        self.browser.requested()
        time.sleep(6)
        self.assertEqual(self.browser.requested(), [])
        self.browser.run(hide.replace("arguments[0]", "false"))
        self.browser.wait("requests", lambda: any(
            url.endswith("/status") for url in self.browser.requested()))

    def test_it_says_when_nobody_answers(self):
        server = self.serve()
        self.open(server)
        self.wait_for_status()
        server.process.kill()
        server.process.wait()
        self.browser.wait("a banner", lambda: self.browser.find("#banner").is_displayed())
        self.assertIn("does not answer", self.browser.text("#banner"))
        self.check_accessible("disconnected")
        again = Server()
        again.flags[1] = str(server.port)
        with again:
            self.browser.wait("no banner", lambda: not self.browser.find("#banner").is_displayed())
            snapshot.check(self, self.browser)
            self.check_clean(allowed=["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET",
                                      "ERR_EMPTY_RESPONSE", "503"])

    def test_a_keyboard_is_enough(self):
        self.open(self.serve())
        self.wait_for_status()
        reached = []
        for _ in range(40):
            self.browser.driver.switch_to.active_element.send_keys(Keys.TAB)
            reached.append(self.browser.run("""
              const {id, tagName, textContent} = document.activeElement;
              const style = getComputedStyle(document.activeElement);
              return {name: id || `${tagName} ${textContent}`.slice(0, 40),
                      outline: style.outlineStyle};"""))
            if reached[-1]["name"] == "send":
                break
        names = [focus["name"] for focus in reached]
        for wanted in ("A Requests", "SUMMARY As a table", "new-chat", "log", "draft", "send"):
            self.assertIn(wanted, names)
        for focus in reached:
            self.assertNotEqual(focus["outline"], "none", focus)


class Safety(DashboardTest):
    def test_it_asks_for_a_key_and_keeps_it_in_the_tab(self):
        self.open(self.serve("--api-key", KEY))
        self.browser.wait("a question", lambda: self.browser.find("#lock").is_displayed())
        self.assertFalse(self.browser.find("#content").is_displayed())
        self.check_accessible("locked")
        self.browser.find("#key").send_keys("wrong", Keys.ENTER)
        self.browser.wait_for_text("#key-problem", "does not know this key")
        self.browser.find("#key").send_keys(KEY, Keys.ENTER)
        self.wait_for_status()
        self.assertFalse(self.browser.find("#lock").is_displayed())
        self.say("Hi")
        self.wait_for_reply(1)
        kept = self.browser.run("return {...sessionStorage}")
        self.assertEqual(kept["kvern-key"], KEY)
        self.assertEqual(self.browser.run("return [localStorage.length, document.cookie]"), [0, ""])
        self.assertNotIn(KEY, self.browser.run("return document.documentElement.outerHTML"))
        self.browser.find("#forget-key").click()
        self.browser.wait("a question", lambda: self.browser.find("#lock").is_displayed())
        self.assertNotIn("kvern-key", json.dumps(self.browser.run("return {...sessionStorage}")))
        self.check_clean(allowed=["401"])

    def test_a_key_sees_what_it_may(self):
        keys = self.enterContext(tempfile.NamedTemporaryFile("w", suffix=".keys"))
        keys.write("".join(f"blake2b:{hashlib.blake2b(key.encode(), digest_size=32).hexdigest()} "
                           f"tenant={key} rights={rights}\n"
                           for key, rights in (("ann", "infer,inspect"), ("bob", "infer"))))
        keys.flush()
        server = self.serve("--api-key-file", keys.name)
        asker = Asker(server, STORY, 3000, key="bob")
        self.open(server)
        self.browser.wait("a question", lambda: self.browser.find("#lock").is_displayed())
        self.browser.find("#key").send_keys("ann", Keys.ENTER)
        self.wait_for_status()
        # Of bob's request and its memory nothing is seen.
        self.assertEqual(self.browser.all("#live-rows tr"), [])
        self.assertTrue(self.browser.find("#own-part").is_displayed())
        for part in self.browser.all(".for-all"):
            self.assertFalse(part.is_displayed())
        self.assertEqual(self.browser.text("[data-field='pool.active'][data-format=bytes]"), "0 B")
        self.say("Hi")
        self.wait_for_reply(1)
        self.check_accessible("a tenant's view")
        self.browser.find("#forget-key").click()
        self.browser.find("#key").send_keys("bob", Keys.ENTER)
        self.browser.wait_for_text("#banner", "This key may chat")
        self.assertFalse(self.browser.find("#overview").is_displayed())
        self.assertTrue(self.browser.find("#draft").is_displayed())
        self.check_accessible("a chat alone")
        self.check_clean(allowed=["401", "403"])
        server.process.kill()
        asker.join(30)

    def test_what_is_put_into_the_page_does_not_run(self):
        self.open(self.serve())
        self.browser.run("""
          const script = document.createElement('script');
          script.textContent = 'window.hasRun = true';
          document.body.append(script);
          const image = document.createElement('img');
          image.src = 'https://example.org/pixel.png';
          document.body.append(image);""")
        self.browser.wait("refusals", lambda: len([
            text for text in self.browser.problems() if "Content Security Policy" in text]) >= 1)
        self.assertFalse(self.browser.run("return Boolean(window.hasRun)"))


if __name__ == "__main__":
    harness.main()
