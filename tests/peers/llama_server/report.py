"""Prints how many tests of each file passed, failed and are out: report.py RESULTS.json."""

import json
import sys
from collections import Counter
from pathlib import Path

COLUMNS = ("passed", "failed", "skipped", "out")


def main():
    results = json.loads(Path(sys.argv[1]).read_text())
    files = {}
    for test, outcome in results.items():
        files.setdefault(Path(test.split("::")[0]).stem, Counter())[outcome] += 1
    print(f"{'':24}" + "".join(f"{name:>9}" for name in COLUMNS))
    for name, counts in sorted(files.items()):
        print(f"{name:24}" + "".join(f"{counts[column]:9}" for column in COLUMNS))
    total = sum(files.values(), Counter())
    print(f"{'together':24}" + "".join(f"{total[column]:9}" for column in COLUMNS))
    for test, outcome in results.items():
        if outcome in ("failed", "skipped"):
            print(f"{outcome}: {test}")


if __name__ == "__main__":
    main()
