"""Reads what llama-bench and llama-batched-bench print. `kvern bench` prints the same fields."""

import json

from bench.process import BenchError


def parse_records(text, program):
    """The objects of a JSON array, or of one JSON object a line among other lines."""
    stripped = text.strip()
    try:
        if stripped.startswith("["):
            records = json.loads(stripped)
        else:
            lines = (line.strip() for line in stripped.splitlines())
            records = [json.loads(line) for line in lines if line.startswith("{")]
    except json.JSONDecodeError as error:
        raise BenchError(f"{program}: its output is no JSON: {error}") from None
    if not all(isinstance(record, dict) for record in records):
        raise BenchError(f"{program}: its output is no list of JSON objects")
    return records


def expected_fields(row):
    """The fields by which a record says that it is this row's work."""
    if row.sequences > 1:
        return {"pp": row.prompt, "tg": row.new, "pl": row.sequences, "n_threads": row.threads}
    return {
        "n_prompt": row.prompt,
        "n_gen": row.new,
        "n_depth": row.depth,
        "n_threads": row.threads,
    }


def find_record(records, row, program):
    wanted = expected_fields(row)
    for record in records:
        if all(record.get(field) == value for field, value in wanted.items()):
            return record
    raise BenchError(f"{program}: no record has {wanted}")


def rate_of(record, row, program):
    """Tokens per second: of the decode where there are several sequences."""
    field = "speed_tg" if row.sequences > 1 else "avg_ts"
    value = record.get(field)
    if not isinstance(value, (int, float)) or not value > 0:
        raise BenchError(f"{program}: its field {field} is {value}, not a speed")
    return float(value)
