"""What the end-to-end tests share: the program under test, the models, and how to run it.

A test is run as: TEST.py KVERN DEFAULT_MODEL TINY_MODELS_DIR. KVERN_FULL=1 in the environment asks
for whole grids instead of samples.
"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IS_FULL = os.environ.get("KVERN_FULL") == "1"

program = Path()
default_model = Path()
tiny_models = Path()


class CommandTest(unittest.TestCase):
    """Runs kvern and looks at what it said."""

    maxDiff = None

    def run_kvern(self, *arguments, text=None, environment=None):
        """(exit code, standard output, standard error)."""
        done = subprocess.run(
            [program, *map(str, arguments)],
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            encoding="utf-8",
            timeout=600,
            env={**os.environ, **(environment or {})},
        )
        return done.returncode, done.stdout, done.stderr

    def output_of(self, *arguments, **options):
        """Standard output of a command that must succeed."""
        code, out, err = self.run_kvern(*arguments, **options)
        self.assertEqual(code, 0, err)
        return out

    def assert_fails(self, code, message, *arguments, **options):
        """It exits with `code` and one line that contains `message`, and prints no result."""
        actual, out, err = self.run_kvern(*arguments, **options)
        self.assertEqual(actual, code, err)
        self.assertEqual(out, "")
        self.assertRegex(err, r"\Akvern: [^\n]+\n\Z")
        self.assertIn(message, err)


def main():
    global program, default_model, tiny_models
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} KVERN DEFAULT_MODEL TINY_MODELS_DIR [TEST...]")
    program, default_model, tiny_models = map(Path, sys.argv[1:4])
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[4:]])
