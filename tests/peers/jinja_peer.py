"""Compares chat templates rendered by Kvern with Python's jinja2, byte for byte.

    jinja_peer.py PEERS_DIR RENDER_TEMPLATE [--only NAME] [--verbose]

PEERS_DIR holds llama.cpp's sources (scripts/build-llama-cpp); every template in its models/templates
is rendered with every conversation of jinja_conversations.py. RENDER_TEMPLATE is the program of that
name. Equal means: the same text; or both refuse, with the same words where the template itself
raised; or Kvern names a construct that it does not support.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

import jinja_conversations
import jinja_setup


def kvern_results(program, source, contexts):
    lines = [json.dumps({"template": source, "context": context}) for context in contexts]
    output = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True,
                            check=True).stdout
    return [json.loads(line) for line in output.split("\n")[:-1]]


def judge(expected, actual):
    """"equal", "unsupported" or "different"."""
    if actual.get("kind") == "unsupported":
        return "unsupported"
    if "text" in expected or "text" in actual:
        return "equal" if expected.get("text") == actual.get("text") else "different"
    if expected["kind"] != actual["kind"]:
        return "different"
    message = re.sub(r"^line \d+: ", "", actual["error"])
    same_words = expected["kind"] == "template" or message == expected["error"]
    return "equal" if same_words else "different"


def compare(program, path, cases, verbose):
    source = path.read_text()
    counts = {"equal": 0, "unsupported": 0, "different": 0, "raised": 0, "failed": 0}
    results = kvern_results(program, source, cases.values())
    for (name, context), actual in zip(cases.items(), results):
        expected = jinja_setup.render(source, context)
        verdict = judge(expected, actual)
        counts[verdict] += 1
        counts["raised"] += expected.get("kind") == "raised"
        counts["failed"] += expected.get("kind") == "template"
        if verdict == "unsupported" or (verdict == "different" and (verbose or counts[verdict] == 1)):
            print(f"{path.name}: {name}: {verdict}\n  jinja2: {expected}\n  kvern:  {actual}")
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("peers", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("--only")
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.peers / "src" / "vendor" / "llama.cpp" / "models" / "templates"
    paths = sorted(folder.glob("*.jinja"))
    if arguments.only:
        paths = [path for path in paths if arguments.only in path.name]
    if not paths:
        sys.exit(f"no templates in {folder}")
    cases = jinja_conversations.contexts()
    totals, num_equal = {}, 0
    for path in paths:
        counts = compare(arguments.program, path, cases, arguments.verbose)
        num_equal += counts["equal"] == len(cases)
        totals = {key: totals.get(key, 0) + counts[key] for key in counts}
    print(f"{num_equal} of {len(paths)} templates equal in all of {len(cases)} conversations; "
          f"renderings: {totals['equal']} equal, {totals['different']} different, "
          f"{totals['unsupported']} unsupported "
          f"(jinja2: {totals['raised']} refused by the template, {totals['failed']} failed)")
    sys.exit(totals["different"] > 0)


if __name__ == "__main__":
    main()
