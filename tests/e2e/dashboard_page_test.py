"""The dashboard as a browser gets it, without one: scripts/test-dashboard has one."""

import base64
import hashlib
import re
import unittest

import harness
from serving import Server


class Page(unittest.TestCase):
    def test_it_is_one_page_that_may_do_nothing_else(self):
        with Server("--api-key", "a-key") as server:
            status, headers, page = server.get("/")  # holds no data, so it needs no key
            self.assertEqual(server.ask("HEAD", "/")[0], 200)
            self.assertEqual(server.get("/v1/models")[0], 401)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        page = page.decode()
        policy = headers["Content-Security-Policy"]
        for tag, directive in (("style", "style-src"), ("script", "script-src")):
            inside = re.findall(rf"<{tag}[^>]*>(.*?)</{tag}>", page, re.DOTALL)
            self.assertEqual(len(inside), 1)
            digest = base64.b64encode(hashlib.sha256(inside[0].encode()).digest()).decode()
            self.assertIn(f"{directive} 'sha256-{digest}';", policy)
        for rule in ("default-src 'none'", "connect-src 'self'", "base-uri 'none'",
                     "form-action 'none'", "frame-ancestors 'none'"):
            self.assertIn(rule, policy)
        self.assertNotIn("unsafe", policy)
        # Namespaces of SVG are the only addresses in it.
        self.assertEqual(set(re.findall(r"https?://[\w.]+", page)), {"http://www.w3.org"})
        self.assertNotRegex(page, r"innerHTML|insertAdjacentHTML|document\.write|\beval\(")
        self.assertEqual(headers["X-Content-Type-Options"], "nosniff")

    def test_it_can_be_left_out(self):
        with Server("--no-ui") as server:
            self.assertEqual(server.get("/")[0], 404)


if __name__ == "__main__":
    harness.main()
