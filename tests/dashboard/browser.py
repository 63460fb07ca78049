"""A browser under test: Debian's chromium, without a window, that reaches this machine alone."""

import base64
import importlib.util
import json
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

CHROMIUM = "/usr/bin/chromium"
DRIVER = "/usr/bin/chromedriver"
WAIT_S = 60
AXE = Path(importlib.util.find_spec("axe_playwright_python").origin).with_name("axe.min.js")

# Keeps what the page was told, so that what it shows can be compared with that; and answers a chat
# with `kvernReply` where a test sets it.
RECORDER = """
window.kvernTold = [];
const realFetch = window.fetch;
window.fetch = async (path, options) => {
  if (window.kvernReply && path.endsWith('chat/completions')) {
    const event = {choices: [{delta: {content: window.kvernReply}}]};
    return new Response(`data: ${JSON.stringify(event)}\\n\\ndata: [DONE]\\n\\n`);
  }
  const reply = await realFetch(path, options);
  const body = reply.ok && ['status', 'requests'].includes(path.split('?')[0])
    ? await reply.clone().json() : null;
  window.kvernTold.push({path, body});
  window.kvernTold.splice(0, window.kvernTold.length - 200);
  return reply;
};
"""


class Browser:
    """Used in a `with` statement."""

    def __enter__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                     "--disable-background-networking", "--disable-component-update",
                     "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                     f"--user-data-dir={self.profile.name}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.devtools("Page.addScriptToEvaluateOnNewDocument", source=RECORDER)
        self.show_as(1280, 900)
        return self

    def __exit__(self, *_):
        self.driver.quit()
        self.profile.cleanup()

    def devtools(self, method, **parameters):
        return self.driver.execute_cdp_cmd(method, parameters)

    def show_as(self, width, height, scheme="light"):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=1, mobile=width < 600)
        self.devtools("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": scheme},
                                {"name": "prefers-reduced-motion", "value": "reduce"}])

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def wait(self, what, condition, timeout_s=WAIT_S):
        """The first true value of `condition()`."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.05)
        raise AssertionError(f"not within {timeout_s} s: {what}; {self.text('#page')[:2000]}")

    def wait_for_text(self, selector, wanted, timeout_s=WAIT_S):
        return self.wait(f"{wanted!r} in {selector}", lambda: wanted in self.text(selector),
                         timeout_s)

    def screenshot(self, path, height=None):
        """Of the window; of so many pixels from the top where `height` is given."""
        clip = {}
        if height:
            width = self.run("return document.documentElement.clientWidth")
            clip = {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}
        png = self.devtools("Page.captureScreenshot", format="png",
                            captureBeyondViewport=bool(height), **clip)
        Path(path).write_bytes(base64.b64decode(png["data"]))

    def axe_violations(self):
        """What the accessibility check finds: (rule, what it asks for, the elements)."""
        self.run(AXE.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "axe.run().then((results) => arguments[0](results.violations))")
        return [(rule["id"], rule["help"], [node["html"] for node in rule["nodes"]])
                for rule in found]

    def requested(self):
        """Addresses that the browser asked for since the last call."""
        urls = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                urls.append(message["params"]["request"]["url"])
        return urls

    def problems(self):
        """What the console was told since the last call, without notes."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] in ("SEVERE", "WARNING")]
