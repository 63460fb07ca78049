#!/usr/bin/env python3
"""Writes tests/data/jinja/*.json: what jinja2 makes of jinja_snippets.py, for chat_template tests.

    python tests/peers/make_jinja_goldens.py [RENDER_TEMPLATE]

Needs jinja2. With the program RENDER_TEMPLATE, also prints where Kvern differs.
"""

import json
import subprocess
import sys
from pathlib import Path

import jinja_peer
import jinja_setup
import jinja_snippets

FOLDER = Path(__file__).parents[1] / "data" / "jinja"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "context.json").write_text(json.dumps(jinja_snippets.CONTEXT, indent=1) + "\n")
    for group, templates in jinja_snippets.GROUPS.items():
        cases = [{"template": template, **jinja_setup.render(template, jinja_snippets.CONTEXT)}
                 for template in templates]
        for case in cases:
            if case.get("kind") == "template":
                del case["error"]  # Python's words, not Kvern's
        lines = ",\n".join(json.dumps(case) for case in cases)
        (FOLDER / f"{group}.json").write_text(f"[\n{lines}\n]\n")
        if len(sys.argv) > 1:
            show_differences(sys.argv[1], cases)


def show_differences(program, cases):
    lines = [json.dumps({"template": case["template"], "context": jinja_snippets.CONTEXT})
             for case in cases]
    output = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True,
                            check=True).stdout
    for case, line in zip(cases, output.split("\n")):
        actual = json.loads(line)
        if jinja_peer.judge(case, actual) != "equal":
            print(f"{case['template']!r}\n  jinja2: {case}\n  kvern:  {actual}")


if __name__ == "__main__":
    main()
