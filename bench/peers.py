"""Compares Kvern with llama.cpp and OpenVINO GenAI in one run, and writes the report."""

import datetime
import shutil
from dataclasses import dataclass
from pathlib import Path

from bench import chart, machine, openvino_peer, report
from bench.make_models import make_model
from bench.measure import measure_rounds
from bench.process import output_of, result_of_step, run_step
from bench.programs import Kvern, LlamaCpp
from bench.rows import WEIGHTS

MODEL = Path("build/models/SmolLM2-135M-Instruct.Q4_1.gguf")
OUT = Path("build/bench")
IMAGES = Path("docs/images")
CHART_NAME = "speed.svg"
RANDOM_WEIGHTS = " Rows that name a weight type have a random-weight model of 101M parameters."
NAMES = (report.OURS, report.LLAMA, report.OPENVINO)


@dataclass(frozen=True)
class Comparison:
    """What a report says. `facts` are (what, value) pairs, `commands` command lines."""

    rows: list
    samples: object
    summary: str
    facts: list
    commands: list
    chart_name: str = CHART_NAME


@dataclass(frozen=True)
class Options:
    rows: list
    num_rounds: int
    names: tuple  # of the programs to measure
    kvern: Path | None  # a program already built
    isa: str | None
    update_readme: bool


def build_kvern():
    run_step(["scripts/build", "release", "kvern"])
    return Path("build/release/kvern")


def bring_peers(rows, names, log):
    """(folder of the peers, Python of OpenVINO or None, model files by weight type)."""
    peers = Path(result_of_step(["scripts/build-llama-cpp"]).strip())
    python = openvino_peer.install(peers, log) if report.OPENVINO in names else None
    models = {"": MODEL}
    for weights in WEIGHTS:
        if any(row.weights == weights for row in rows):
            models[weights] = make_model(weights, MODEL, peers / "models", log)
    return peers, python, models


def run(options, log):
    """Measures and writes; returns the lines of what could not be measured."""
    kvern = None
    if report.OURS in options.names:
        kvern = options.kvern or build_kvern()
    peers, python, models = bring_peers(options.rows, options.names, log)
    OUT.mkdir(parents=True, exist_ok=True)
    load = machine.load_average()
    if machine.is_busy(load):
        log(f"The machine is busy (load {load:.2f}): the numbers will be worth little.")
    start = datetime.datetime.now()
    with openvino_peer.OpenVino(python, MODEL, OUT) as vino:
        programs = [LlamaCpp(peers / "lb" / "bin", models), vino]
        programs += [Kvern(kvern, models, options.isa)] if kvern else []
        programs = [p for name in NAMES for p in programs if p.name == name in options.names]
        samples = measure_rounds(options.rows, programs, options.num_rounds, log)
    facts = [*machine.describe(load), *program_facts(programs, kvern)]
    facts.append(("time", f"{start:%Y-%m-%d %H:%M}, {minutes_since(start):.0f} minutes"))
    comparison = Comparison(
        options.rows, samples, summary(options), facts, commands(options.rows, programs, samples)
    )
    write(comparison, options.update_readme, log)
    return report.error_lines(samples)


def minutes_since(start):
    return (datetime.datetime.now() - start).total_seconds() / 60


def summary(options):
    threads = max(row.threads for row in options.rows)
    rounds = "one round" if options.num_rounds == 1 else f"{options.num_rounds} rounds"
    return (
        f"Tokens per second: median and range of {rounds} in which the programs took turns; "
        f"{threads} threads where no other number is given; SmolLM2-135M-Instruct Q4_1. "
        "Kvern and llama.cpp keep K and V in f16, OpenVINO in 8 bits, its default."
        + (RANDOM_WEIGHTS if any(row.weights for row in options.rows) else "")
    )


def program_facts(programs, kvern):
    facts = []
    if kvern:
        version = output_of([kvern, "version"], timeout_s=30)
        facts.append(("Kvern", "; ".join(version.splitlines())))
        commit = output_of(["git", "describe", "--always", "--dirty"], timeout_s=30).strip()
        facts.append(("Kvern's commit", commit))
    for program in programs:
        said = ", ".join(f"{key} {value}" for key, value in sorted(program.facts.items()))
        if said:
            facts.append((f"{program.name} said", said))
    return facts


def commands(rows, programs, samples):
    """The command behind each number of the table."""
    lines = []
    for row in rows:
        for program in programs:
            best = samples.best(row.name, program.name)
            if best:
                lines.append(program.describe(row, best.setting))
    return lines


def write(comparison, update_readme, log):
    rows = chart.bar_rows(
        comparison.rows, comparison.samples, report.OURS, (report.LLAMA, report.OPENVINO)
    )
    chart_path = OUT / CHART_NAME
    chart_path.write_text(chart.draw("Kvern's speed as a multiple of its peers'", rows))
    text = report.document(comparison)
    (OUT / "peers.md").write_text(text)
    (OUT / "peers.json").write_text(report.as_json(comparison))
    print(text)
    log(f"Written: {OUT / 'peers.md'}, {OUT / 'peers.json'}, {chart_path}")
    if update_readme:
        readme = Path("README.md")
        section = report.readme_section(comparison)
        readme.write_text(report.replace_section(readme.read_text(), section))
        IMAGES.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(chart_path, IMAGES / CHART_NAME)
        log(f"Rewritten: README.md, {IMAGES / CHART_NAME}")
