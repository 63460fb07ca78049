"""The command line of scripts/bench."""

import argparse
import os
import sys
from pathlib import Path

from bench import against, peers
from bench.process import BenchError
from bench.rows import against_rows, comparison_rows, select

MIN_ROUNDS = 5


def log(text):
    print(text, file=sys.stderr, flush=True)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures Kvern, llama.cpp and OpenVINO GenAI in turn on the same model.",
    )
    parser.add_argument("--rounds", type=positive, help="default 5; with --quick 1")
    parser.add_argument("--quick", action="store_true", help="few rows: does it all work?")
    parser.add_argument("--only", nargs="+", metavar="ROW", default=[], help="only these rows")
    parser.add_argument("--threads", type=positive, default=os.cpu_count(),
                        help="of the rows that are not for one thread (default: all cores)")
    parser.add_argument("--weights", action="store_true",
                        help="also random-weight models of other weight types")
    parser.add_argument("--programs", nargs="+", choices=peers.NAMES, default=peers.NAMES,
                        help="only these programs")
    parser.add_argument("--kvern", type=Path, metavar="PROGRAM",
                        help="measure this program, instead of building one")
    parser.add_argument("--isa", help="instruction set that Kvern is forced to use")
    parser.add_argument("--update-readme", action="store_true",
                        help="put the table and the chart into the README")
    parser.add_argument("--against", metavar="REF",
                        help="measure this tree against a commit instead; fails on a loss")
    parser.add_argument("--limit", type=float, default=5.0, metavar="PERCENT",
                        help="with --against: the loss that fails (default 5)")
    return parser.parse_args(argv)


def run_peers(args):
    rows = comparison_rows(args.threads, args.weights)
    if args.only:
        rows = select(rows, args.only)
    elif args.quick:
        rows = [row for row in rows if row.is_quick]
    num_rounds = args.rounds or (1 if args.quick else MIN_ROUNDS)
    problems = peers.run(
        peers.Options(rows, num_rounds, tuple(args.programs), args.kvern, args.isa,
                      args.update_readme),
        log,
    )
    return 1 if problems else 0


def run_against(args):
    rows = against_rows(args.threads)
    rows = select(rows, args.only) if args.only else rows
    num_rounds = max(args.rounds or MIN_ROUNDS, MIN_ROUNDS)
    lost = against.run(
        against.Options(args.against, rows, num_rounds, args.limit, args.kvern), log
    )
    if lost:
        log(f"scripts/bench: slower than {args.against} by more than {args.limit:g} %: "
            + ", ".join(lost))
    return 1 if lost else 0


def main():
    args = parse(sys.argv[1:])
    try:
        return run_against(args) if args.against else run_peers(args)
    except BenchError as error:
        log(f"scripts/bench: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
