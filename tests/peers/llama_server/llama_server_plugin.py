"""Makes llama.cpp's server tests run with another model and server; their files stay as they are.

- No models are fetched, and expected texts become "not empty".
- The manifest names every test that is collected: run, or out with a reason. A test that it does
  not name fails the run, and so does one that it names and that is not there.
- Numbers that depend on the model are recorded from llama-server (replacements.py), with
  KVERN_RECORD=1, and expected otherwise.

Environment: KVERN_MANIFEST, KVERN_RECORDED (a JSON file), KVERN_RECORD, KVERN_RESULTS (a JSON file
to write: what became of each test).
"""

import _pytest.assertion.rewrite as rewrite
import ast
import builtins
import json
import os
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
import replacements

IS_RECORDING = os.environ.get("KVERN_RECORD") == "1"
RUN = "# run"
OUT = "# out: "


def read_manifest(path):
    """{test id: None where it runs, else why it is out}"""
    entries, reason = {}, None
    for line in Path(path).read_text().splitlines():
        if line.startswith(OUT):
            reason = line.removeprefix(OUT)
        elif line == RUN:
            reason = None
        elif line and not line.startswith("#"):
            assert line not in entries, f"{path}: names {line} twice"
            entries[line] = reason
    return entries


class Value:
    """What a recorded value is compared with is told to `compare`, whose answer it is."""

    def __init__(self, compare):
        self.compare = compare

    def __eq__(self, other):
        return self.compare(other)

    __hash__ = None


class Recorded:
    def __init__(self, path):
        self.path = Path(path)
        self.values = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.test = None
        self.asked = Counter()

    def begin(self, test):
        self.test, self.asked = test, Counter()
        if IS_RECORDING:
            self.values[test] = {}

    def __call__(self, name):
        self.asked[name] += 1
        key = f"{name} {self.asked[name]}"
        values = self.values.setdefault(self.test, {})

        def record(value):
            values[key] = value
            return True

        def fail(_):
            pytest.fail(f"{self.path}: lacks '{key}': run scripts/test-llama-server --record")

        if IS_RECORDING:
            return Value(record)
        return values[key] if key in values else Value(fail)

    def save(self):
        values = {test: found for test, found in sorted(self.values.items()) if found}
        self.path.write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")


class Replacer(ast.NodeTransformer):
    def __init__(self, expressions):
        self.expressions = expressions
        self.found = set()

    def visit(self, node):
        if isinstance(node, ast.expr) and not isinstance(getattr(node, "ctx", None), ast.Store):
            text = ast.unparse(node)
            if text in self.expressions:
                self.found.add(text)
                other = ast.parse(self.expressions[text], mode="eval").body
                return ast.copy_location(other, node)
        return self.generic_visit(node)


def replace_expressions(tree):
    for node in tree.body:
        expressions = replacements.REPLACEMENTS.get(getattr(node, "name", None), {})
        replacer = Replacer(expressions)
        if expressions:
            replacer.visit(node)
        missing = set(expressions) - replacer.found
        if missing:
            raise pytest.UsageError(f"{node.name}: has no {missing} any more: see replacements.py")
    ast.fix_missing_locations(tree)


class Plugin:
    def __init__(self, config):
        self.manifest = read_manifest(os.environ["KVERN_MANIFEST"])
        self.recorded = Recorded(os.environ["KVERN_RECORDED"])
        self.is_partial = any("::" in argument for argument in config.args)
        self.results = {}
        builtins.recorded = self.recorded
        self.patch_tests()

    def patch_tests(self):
        import utils

        utils.match_regex = lambda regex, text: len(text) > 0
        utils.ServerPreset.load_all = staticmethod(lambda: None)
        rewrite_asserts = rewrite.rewrite_asserts

        def rewrite_with_replacements(tree, *arguments):
            replace_expressions(tree)
            return rewrite_asserts(tree, *arguments)

        rewrite.rewrite_asserts = rewrite_with_replacements

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        ids = {item.nodeid for item in items}
        problems = [f"not in the manifest: {test}" for test in sorted(ids - set(self.manifest))]
        if not self.is_partial:
            problems += [f"not collected: {test}" for test in self.manifest if test not in ids]
        if problems:
            raise pytest.UsageError("\n".join(problems))
        out = [item for item in items if self.manifest[item.nodeid] is not None]
        config.hook.pytest_deselected(items=out)
        self.results.update((item.nodeid, "out") for item in out)
        items[:] = [item for item in items if self.manifest[item.nodeid] is None]
        for item in items:  # what llama.cpp skips is run like the others
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.recorded.begin(item.nodeid)
        random.seed(item.nodeid)
        callspec = getattr(item, "callspec", None)
        for name in replacements.RECORDED_PARAMETERS & set(callspec.params if callspec else ()):
            callspec.params[name] = self.recorded(name)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.results[report.nodeid] = "failed"
        elif report.skipped:
            self.results[report.nodeid] = "skipped"
        else:
            self.results.setdefault(report.nodeid, "passed")

    def pytest_sessionfinish(self):
        Path(os.environ["KVERN_RESULTS"]).write_text(json.dumps(self.results, indent=1) + "\n")
        if IS_RECORDING:
            self.recorded.save()


def pytest_configure(config):
    sys.path.insert(0, str(config.rootpath))
    config.pluginmanager.register(Plugin(config), "kvern-llama-server")
