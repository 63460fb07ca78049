"""What operators put around `kvern serve`: Prometheus, the dashboard and the alerts of
docs/monitoring, nginx and HAProxy as docs/deploy has them.

Run by scripts/test-monitoring: monitoring_test.py KVERN DEFAULT_MODEL TINY_MODELS_DIR [TEST...]
"""

import http.client
import itertools
import json
import math
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
import programs  # noqa: E402
from serving import Server  # noqa: E402

MONITORING = programs.ROOT / "docs/monitoring"
DEPLOY = programs.ROOT / "docs/deploy"
COMPLETIONS = "/v1/completions"
ADMIN_KEY = "the-key-of-prometheus"
TENANT_KEYS = {"acme": "the-key-of-acme", "globex": "the-key-of-globex"}
KEY_FILE = f"{ADMIN_KEY} tenant=prometheus rights=infer,inspect,admin\n" + "".join(
    f"{key} tenant={tenant}\n" for tenant, key in TENANT_KEYS.items())
LOAD_S = 20


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def samples(server, key=ADMIN_KEY):
    """{name with its labels but the model's: value} of /metrics."""
    _, _, text = server.get("/metrics", headers=bearer(key))
    lines = (line.rsplit(" ", 1) for line in text.decode().splitlines() if line[0] != "#")
    return {re.sub(r'model_name="[^"]*",?|\{model_name="[^"]*"\}', "", name).replace("{}", ""):
            float(value) for name, value in lines}


class Files(unittest.TestCase):
    """What promtool and others say of the files alone."""

    def test_alerts(self):
        code, said = programs.run("promtool", "check", "rules", MONITORING / "alerts.yml")
        self.assertEqual(code, 0, said)
        self.assertIn("8 rules found", said)
        code, said = programs.run("promtool", "test", "rules",
                                  Path(__file__).parent / "alerts_test.yml")
        self.assertEqual(code, 0, said)

    def test_every_alert_has_a_test(self):
        rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
        tests = yaml.safe_load((Path(__file__).parent / "alerts_test.yml").read_text())["tests"]
        fired = {check["alertname"] for test in tests for check in test["alert_rule_test"]
                 if "exp_alerts" in check}
        self.assertEqual(fired, {rule["alert"] for rule in rules})

    def test_a_broken_alert_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder) / "alerts.yml"
            broken.write_text((MONITORING / "alerts.yml").read_text().replace("> 0.3", "> > 0.3"))
            self.assertNotEqual(programs.run("promtool", "check", "rules", broken)[0], 0)

    def test_the_example_of_prometheus(self):
        code, said = programs.run("promtool", "check", "config", "--syntax-only",
                                  MONITORING / "prometheus.yml")
        self.assertEqual(code, 0, said)

    def test_the_dashboard_is_well_formed(self):
        panels = json.loads((MONITORING / "grafana.json").read_text())["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = {}
        for panel in panels:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24, panel["title"])
            for cell in itertools.product(range(place["x"], place["x"] + place["w"]),
                                          range(place["y"], place["y"] + place["h"])):
                self.assertEqual(taken.setdefault(cell, panel["title"]), panel["title"])
            for target in panel.get("targets", []):
                self.assertEqual(target["datasource"]["uid"], "${datasource}")

    def test_the_unit(self):
        analyze = shutil.which("systemd-analyze")
        self.assertIsNotNone(analyze, "install systemd")
        with tempfile.TemporaryDirectory() as folder:
            unit = Path(folder) / "kvern.service"
            unit.write_text(programs.edited((DEPLOY / "kvern.service").read_text(), {
                "/usr/local/bin/kvern": harness.program.resolve()}))
            done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True,
                                  encoding="utf-8", timeout=60)
            said = [line for line in done.stderr.splitlines() if "kvern.service" in line]
            self.assertEqual((done.returncode, said), (0, []))


class Load:
    """Clients of two tenants that ask more than the server has memory and turns for: some prompts
    come again, some clients go before their answer has ended."""

    DOCUMENTS = 24

    def __init__(self, server):
        self.server = server
        self.is_over = threading.Event()
        self.statuses = []
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self._work, args=(i,)) for i in range(14)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def _work(self, index):
        key = list(TENANT_KEYS.values())[index % 2]
        while not self.is_over.is_set():
            number = next(self.numbers)
            # Every other prompt is one of few, the rest come in turn.
            document = number % 3 if number % 2 else 3 + number % (self.DOCUMENTS - 3)
            body = {"prompt": f"Document {document}: " + f"line {document} says {document}. " * 28,
                    "max_tokens": 48, "ignore_eos": True, "temperature": 0}
            if index == 0:
                self._leave_early(body, key)
                continue
            status, _, _ = self.server.post(COMPLETIONS, body, headers=bearer(key))
            self.statuses.append(status)
            if status == 503:
                self.is_over.wait(0.3)

    def _leave_early(self, body, key):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        connection.request("POST", COMPLETIONS, json.dumps({**body, "stream": True}), bearer(key))
        connection.getresponse().read(1)
        connection.close()


class Prometheus(unittest.TestCase):
    """A real one scrapes a loaded server every second, by the files of docs/monitoring."""

    # Of a machine without faults whose clients all read; and what lasts less than a second.
    MAY_BE_0 = {"violations", "self-check failures", "failures, all", "violations, all", "failed",
                "paused by slow clients", "… for a prefix"}

    @classmethod
    def setUpClass(cls):
        folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (folder / "keys").write_text(KEY_FILE)
        (folder / "key").write_text(ADMIN_KEY)
        cls.server = cls.enterClassContext(Server(
            "--alias", "smol", "--api-key-file", str(folder / "keys"), "-c", "512",
            "--kv-tokens", "1024", "--max-running", "16", "--max-waiting", "4",
            "--speculation", "ngram"))
        (folder / "prometheus.yml").write_text(programs.edited(
            (MONITORING / "prometheus.yml").read_text(), {
                "127.0.0.1:8080": f"127.0.0.1:{cls.server.port}", "15s": "1s",
                "/etc/prometheus/kvern.key": folder / "key"}))
        shutil.copy(MONITORING / "alerts.yml", folder)
        cls.port = programs.free_port()
        cls.enterClassContext(programs.Program(
            cls.port, "prometheus", f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{cls.port}"))
        cls.start_s = time.time()
        with Load(cls.server) as cls.load:
            time.sleep(LOAD_S)
        cls.end_s = time.time()
        cls.dashboard = json.loads((MONITORING / "grafana.json").read_text())

    def ask(self, path, **parameters):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}")
        reply = json.loads(connection.getresponse().read())
        connection.close()
        self.assertEqual(reply["status"], "success", reply)
        return reply["data"]

    def values(self, expression):
        """All finite values that it had while the load went on."""
        series = self.ask("query_range", query=expression, start=self.start_s, end=self.end_s,
                          step=1)["result"]
        found = [float(value) for one in series for _, value in one["values"]]
        return [value for value in found if math.isfinite(value)]

    def targets(self):
        """(panel's title, legend, expression with its variables set), of all panels."""
        variables = {"$job": "kvern", "$instance": ".*", "$__rate_interval": "10s"}
        for panel in self.dashboard["panels"]:
            for target in panel.get("targets", []):
                expression = target["expr"]
                for name, value in variables.items():
                    expression = expression.replace(name, value)
                yield panel["title"], target["legendFormat"], expression

    def test_the_load_was_one(self):
        self.assertGreater(self.load.statuses.count(200), 20)
        self.assertGreater(self.load.statuses.count(503), 0)
        self.assertEqual(set(self.load.statuses), {200, 503})

    def test_names_follow_the_conventions(self):
        _, _, text = self.server.get("/metrics", headers=bearer(ADMIN_KEY))
        own = "".join(line + "\n" for line in text.decode().splitlines()
                      if re.match(r"(# (HELP|TYPE) )?kvern_", line))
        self.assertEqual(programs.run("promtool", "check", "metrics", text=own), (0, ""))
        self.assertIn("kvern_tenant_requests_total", own)
        bad = own.replace("kvern_requests_total", "kvern_requests")
        self.assertNotEqual(programs.run("promtool", "check", "metrics", text=bad)[0], 0)

    def test_panels_have_data(self):
        titles = set()
        for title, legend, expression in self.targets():
            with self.subTest(title, legend=legend):
                self.assertNotIn("$", expression)
                found = self.values(expression)
                self.assertGreater(len(found), 0, expression)
                if legend not in self.MAY_BE_0:
                    self.assertGreater(max(found), 0, expression)
            titles.add(title)
        self.assertGreater(len(titles), 20)

    def test_variables_have_values(self):
        for variable in self.dashboard["templating"]["list"]:
            if variable["type"] != "query":
                continue
            metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)",
                                         variable["definition"]).groups()
            self.assertEqual(variable["query"]["query"], variable["definition"])
            series = self.ask("query", query=metric.replace("$job", "kvern"),
                              time=self.end_s)["result"]
            self.assertEqual([bool(one["metric"][label]) for one in series], [True])

    def test_time_is_told_by_what_bounds_it(self):
        told = {bound: max(self.values(f'kvern_bound_seconds_total{{bound="{bound}"}}'))
                for bound in ("kv", "queue", "compute")}
        self.assertGreater(told["kv"], 0.2 * LOAD_S, told)
        self.assertLess(sum(told.values()), self.end_s - self.start_s + 1)

    def test_tenants_are_for_administrators(self):
        self.assertEqual({re.search('tenant="(.*?)"', name)[1] for name in samples(self.server)
                          if "tenant=" in name}, set(TENANT_KEYS))
        tenants = samples(self.server, TENANT_KEYS["acme"])
        self.assertGreater(len(tenants), 50)
        self.assertEqual([name for name in tenants
                          if re.search("tenant|other_namespace|never_seen", name)], [])

    def test_alerts_are_evaluated(self):
        rules = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
        self.assertEqual([rule["name"] for rule in rules if rule["health"] != "ok"], [])
        self.assertEqual(len(rules), 8)
        names = {name for rule in rules
                 for name in re.findall(r"\b(?:kvern_|vllm:)\w+", rule["query"])}
        self.assertGreater(len(names), 7)
        self.assertEqual([name for name in names if not self.values(f"count({name})")], [])
        critical = [rule["name"] for rule in rules
                    if rule["labels"]["severity"] == "critical" and rule["state"] != "inactive"]
        self.assertEqual(critical, [])


class Proxies(unittest.TestCase):
    """Through nginx and HAProxy, with TLS, a stream comes as it is made, and a client that goes
    ends its request."""

    LONG = {"prompt": "One two three", "max_tokens": 3000, "ignore_eos": True, "temperature": 0}

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.folder.chmod(0o755)
        (cls.folder / "keys").write_text(KEY_FILE)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
                        "-subj", "/CN=llm.example", "-keyout", cls.folder / "key",
                        "-out", cls.folder / "certificate"], check=True, capture_output=True)
        (cls.folder / "both.pem").write_text((cls.folder / "certificate").read_text() +
                                             (cls.folder / "key").read_text())
        cls.server = cls.enterClassContext(Server("--api-key-file", str(cls.folder / "keys")))

    def through_nginx(self):
        port = programs.free_port()
        site = programs.edited((DEPLOY / "nginx.conf").read_text(), {
            "127.0.0.1:8080": f"127.0.0.1:{self.server.port}", "listen 443": f"listen {port}",
            "/etc/nginx/kvern.crt": self.folder / "certificate",
            "/etc/nginx/kvern.key": self.folder / "key",
            "/var/log/nginx/kvern.log": self.folder / "nginx.log"})
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind};\n" for kind in (
            "client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (self.folder / "nginx.conf").write_text(
            f"daemon off;\npid {self.folder}/nginx.pid;\nworker_processes 1;\n"
            f"events {{}}\nhttp {{\n{temporary}{site}}}\n")
        return programs.Program(port, "nginx", "-c", self.folder / "nginx.conf", "-e", "stderr")

    def through_haproxy(self):
        port = programs.free_port()
        (self.folder / "haproxy.cfg").write_text(programs.edited(
            (DEPLOY / "haproxy.cfg").read_text(), {
                "server kvern1 127.0.0.1:8080": f"server kvern1 127.0.0.1:{self.server.port}",
                "log /dev/log local0": "log stdout format raw local0",
                "bind :443": f"bind 127.0.0.1:{port}",
                "/etc/haproxy/kvern.pem": self.folder / "both.pem"}))
        return programs.Program(port, "haproxy", "-db", "-f", self.folder / "haproxy.cfg")

    def send(self, proxy, method, path, body=None, key=TENANT_KEYS["acme"]):
        connection = http.client.HTTPSConnection("127.0.0.1", proxy.port, timeout=60,
                                                 context=ssl._create_unverified_context())
        self.addCleanup(connection.close)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Host": "llm.example", **bearer(key)})
        return connection

    def status(self, proxy, path, key):
        connection = self.send(proxy, "GET", path, key=key)
        reply = connection.getresponse()
        reply.read()
        connection.close()
        return reply.status

    def sample(self, name):
        return samples(self.server)[name]

    def assert_becomes(self, value, name):
        deadline = time.monotonic() + 5
        while self.sample(name) != value and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.sample(name), value, name)

    def check(self, proxy):
        with self.subTest("a whole answer"):
            short = {**self.LONG, "max_tokens": 4}
            reply = self.send(proxy, "POST", COMPLETIONS, short).getresponse()
            text = reply.read()
            self.assertEqual(reply.status, 200, text)
            self.assertTrue(reply.getheader("x-request-id"))
            self.assertEqual(json.loads(text)["usage"]["completion_tokens"], 4)
        with self.subTest("a key that is none"):
            self.assertEqual(self.status(proxy, "/v1/models", "no"), 401)
        with self.subTest("metrics are for machines inside"):
            self.assertEqual(self.status(proxy, "/metrics", ADMIN_KEY), 403)
            self.assertEqual(self.status(proxy, "/v1/metrics", ADMIN_KEY), 403)
        with self.subTest("a body of 2 MB reaches the server"):
            body = {"content": "a b " * 500_000}
            reply = self.send(proxy, "POST", "/tokenize", body).getresponse()
            text = reply.read()
            self.assertEqual(reply.status, 200, text[:200])
            self.assertGreater(len(json.loads(text)["tokens"]), 900_000)
        with self.subTest("a stream comes as it is made, and ends with its client"):
            cancelled = self.sample("kvern_requests_cancelled_total")
            connection = self.send(proxy, "POST", COMPLETIONS, {**self.LONG, "stream": True})
            reply = connection.getresponse()
            self.assertEqual(reply.getheader("Content-Type"), "text/event-stream")
            came_s = []
            for _ in range(60):
                self.assertTrue(reply.readline().startswith(b"data: {"))
                self.assertEqual(reply.readline(), b"\n")
                came_s.append(time.monotonic())
            # A proxy that collects 4 KiB sends a dozen events at once.
            pauses_s = [end - begin for begin, end in itertools.pairwise(came_s)]
            self.assertGreater(sum(pause > 0.001 for pause in pauses_s), 20, came_s)
            self.assertEqual(self.sample("vllm:num_requests_running"), 1)
            self.assertEqual(self.sample("kvern_requests_cancelled_total"), cancelled)
            reply.close()
            connection.close()
            self.assert_becomes(cancelled + 1, "kvern_requests_cancelled_total")
            self.assert_becomes(0, "vllm:num_requests_running")
        with self.subTest("a client that goes before its whole answer ends it"):
            cancelled = self.sample("kvern_requests_cancelled_total")
            connection = self.send(proxy, "POST", COMPLETIONS, self.LONG)
            self.assert_becomes(1, "vllm:num_requests_running")
            connection.close()
            self.assert_becomes(cancelled + 1, "kvern_requests_cancelled_total")
            self.assert_becomes(0, "vllm:num_requests_running")

    def test_nginx(self):
        with self.through_nginx() as proxy:
            self.check(proxy)
        log = (self.folder / "nginx.log").read_text()
        self.assertRegex(log, r'"POST /v1/completions" 200 \d+ [\d.]+ [0-9a-f]{16}-\d+\n')
        self.assertNotIn("One two", log)

    def test_haproxy(self):
        with self.through_haproxy() as proxy:
            code, said = programs.run("haproxy", "-c", "-f", self.folder / "haproxy.cfg")
            self.assertEqual(code, 0, said)
            self.assertNotIn("WARNING", said)
            self.check(proxy)
        self.assertRegex(proxy.printed, r" POST /v1/completions 200 \d+ \d+ [0-9a-f]{16}-\d+\n")
        self.assertNotIn("One two", proxy.printed)


if __name__ == "__main__":
    harness.main()
