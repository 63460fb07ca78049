"""Writes a comparison as Markdown and JSON, and keeps the README's copy."""

import json

from bench.process import BenchError

BEGIN, END = "<!-- bench/peers begin -->", "<!-- bench/peers end -->"
OURS, LLAMA, OPENVINO = "Kvern", "llama.cpp", "OpenVINO"


def ratio_text(ratio):
    return "–" if ratio is None else f"{ratio:.2f}×"


def target_text(row):
    """As "≥ 2.1× / ≥ 2.5×", with a dash where there is no target."""
    targets = (row.target_llama, row.target_openvino)
    return " / ".join("–" if target is None else f"≥ {target:g}×" for target in targets)


def missed_targets(rows, samples):
    """One line for each ratio below its target."""
    lines = []
    for row in rows:
        for peer, target in ((LLAMA, row.target_llama), (OPENVINO, row.target_openvino)):
            ratio = samples.ratio(row.name, OURS, peer)
            if target and ratio is not None and ratio < target:
                lines.append(f"{row.title}: {ratio:.2f}× {peer}, target {target:g}×")
    return lines


def cell(samples, row, program):
    best = samples.best(row.name, program)
    if best is None:
        return "–"
    return f"{best.text()}, `{best.setting}`" if best.setting else best.text()


def table(rows, samples):
    lines = [
        "| work | Kvern | llama.cpp | OpenVINO | vs llama.cpp | vs OpenVINO | targets |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{row.title} (`{row.name}`)"]
        cells += [cell(samples, row, program) for program in (OURS, LLAMA, OPENVINO)]
        cells += [ratio_text(samples.ratio(row.name, OURS, peer)) for peer in (LLAMA, OPENVINO)]
        lines.append("| " + " | ".join([*cells, target_text(row)]) + " |")
    return "\n".join(lines)


def settings_section(facts, commands):
    lines = ["## Settings", "", "| what | value |", "|---|---|"]
    lines += [f"| {what} | {value} |" for what, value in facts]
    lines += ["", "Commands, one for each number:", "", "```", *commands, "```"]
    return "\n".join(lines)


def error_lines(samples):
    return [f"- {row}, {program}: {error}" for (row, program), error in samples.errors.items()]


def document(comparison):
    """The whole report, build/bench/peers.md."""
    samples, rows = comparison.samples, comparison.rows
    parts = ["# Kvern beside its peers", comparison.summary, table(rows, samples)]
    parts.append(f"![ratios]({comparison.chart_name})")
    if missed := missed_targets(rows, samples):
        parts.append("Below target:\n\n" + "\n".join(f"- {line}" for line in missed))
    if errors := error_lines(samples):
        parts.append("Not measured:\n\n" + "\n".join(errors))
    parts.append(settings_section(comparison.facts, comparison.commands))
    return "\n\n".join(parts) + "\n"


def readme_section(comparison):
    parts = [comparison.summary, table(comparison.rows, comparison.samples)]
    image = f"docs/images/{comparison.chart_name}"
    parts.append(f"![Kvern's speed as a multiple of its peers']({image})")
    machine = "; ".join(value for _, value in comparison.facts[:2])
    parts.append(f"Machine: {machine}. [How this is measured](docs/peers.md).")
    return "\n\n".join(parts)


def replace_section(text, body):
    """The text with `body` between the two markers."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BenchError(f"README.md needs one {BEGIN} and, behind it, one {END}")
    head, rest = text.split(BEGIN)
    return f"{head}{BEGIN}\n{body}\n{END}{rest.split(END)[1]}"


def as_json(comparison):
    """Everything that was measured, for other programs."""
    samples = comparison.samples
    rows = []
    for row in comparison.rows:
        programs = {}
        for program, settings in samples.values.get(row.name, {}).items():
            best = samples.best(row.name, program)
            programs[program] = {
                "best_setting": best.setting,
                "median": best.median,
                "samples": settings,
            }
        rows.append({
            "name": row.name,
            "title": row.title,
            "threads": row.threads,
            "programs": programs,
            "ratio_llama": samples.ratio(row.name, OURS, LLAMA),
            "ratio_openvino": samples.ratio(row.name, OURS, OPENVINO),
            "target_llama": row.target_llama,
            "target_openvino": row.target_openvino,
        })
    value = {
        "rows": rows,
        "errors": error_lines(samples),
        "facts": dict(comparison.facts),
        "commands": comparison.commands,
    }
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
