"""The programs that are compared, behind one interface:

    name                      as the table has it
    settings(row)             the settings worth trying for this row; none: it cannot do this row
    describe(row, setting)    the command that measures, as a user would type it
    measure(row, setting)     one measurement in tokens per second; BenchError when it fails
    facts                     what the program said about itself, filled by measuring
"""

from bench import llama_format
from bench.process import command_line, output_of

# What a program says of itself in its records, worth showing beside the numbers.
FACT_FIELDS = ("build_commit", "type_k", "type_v", "n_batch", "n_ubatch", "backends", "isa")
CELLS_PER_BLOCK = 256  # llama.cpp rounds each sequence's context up to this


class LlamaFormatProgram:
    """A program with llama-bench's flags and output. Subclasses say how it is called."""

    def __init__(self, models):
        self.models = models  # weights → model file; "" is the default model
        self.facts = {}

    def measure(self, row, setting):
        records = llama_format.parse_records(
            output_of(self.command(row, setting), row.timeout_s), self.name
        )
        record = llama_format.find_record(records, row, self.name)
        self.facts.update({key: record[key] for key in FACT_FIELDS if key in record})
        return llama_format.rate_of(record, row, self.name)

    def describe(self, row, setting):
        return command_line(self.command(row, setting))

    def model(self, row):
        return self.models[row.weights]


class Kvern(LlamaFormatProgram):
    name = "Kvern"

    def __init__(self, program, models, isa=None):
        super().__init__(models)
        self.program = program
        self.isa_flags = ["--isa", isa] if isa else []

    def settings(self, row):
        return [""]

    def command(self, row, setting):
        if row.sequences > 1:
            command = [self.program, "bench", "batched", "-m", self.model(row)]
            command += ["-npp", row.prompt, "-ntg", row.new, "-npl", row.sequences]
            command += ["--shared-prefix"] if row.is_shared else []
            return [*command, "-t", row.threads, "-o", "jsonl", *self.isa_flags]
        command = [self.program, "bench", "-m", self.model(row)]
        command += ["-p", row.prompt, "-n", row.new, "-d", row.depth, "-t", row.threads]
        return [*command, "-r", 1, "-o", "json", *self.isa_flags]


class LlamaCpp(LlamaFormatProgram):
    name = "llama.cpp"

    def __init__(self, folder, models):
        super().__init__(models)
        self.folder = folder  # of its programs

    def settings(self, row):
        return ["-fa 0", "-fa 1"]

    def command(self, row, setting):
        if row.sequences > 1:
            return self._batched_command(row, setting)
        command = [self.folder / "llama-bench", "-m", self.model(row)]
        command += ["-p", row.prompt, "-n", row.new, "-d", row.depth, "-t", row.threads]
        return [*command, "-r", 1, "-o", "json", *setting.split()]

    def _batched_command(self, row, setting):
        command = [self.folder / "llama-batched-bench", "-m", self.model(row)]
        command += ["-c", context_size(row), "-npp", row.prompt, "-ntg", row.new]
        command += ["-npl", row.sequences, "-t", row.threads, "--output-format", "jsonl"]
        command += ["-fa", "on" if setting == "-fa 1" else "off"]
        return command + (["-pps", "-kvu"] if row.is_shared else [])


def round_up(value, multiple):
    return -(-value // multiple) * multiple


def context_size(row):
    """Cells that llama-batched-bench needs: one pool when the prefix is shared, else one part for
    each sequence."""
    if row.is_shared:
        return round_up(row.prompt + row.sequences * row.new, CELLS_PER_BLOCK)
    return row.sequences * round_up(row.prompt + row.new, CELLS_PER_BLOCK)
