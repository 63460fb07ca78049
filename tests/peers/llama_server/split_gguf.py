"""Splits a model file in three, as llama.cpp's tests load one: split_gguf.py MODEL FOLDER.

Prints the path of the first part. Does nothing where the parts are there.
"""

import sys
from pathlib import Path

import gguf

NUM_PARTS = 3


def split(model, folder):
    first = folder / f"{model.stem}-00001-of-{NUM_PARTS:05}.gguf"
    if first.exists():
        return first
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(model)
    arch = reader.fields["general.architecture"].contents()
    most = -(-len(reader.tensors) // NUM_PARTS)
    made = folder / "part.gguf"
    writer = gguf.GGUFWriter(made, arch, split_max_tensors=most)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for part in range(NUM_PARTS, 0, -1):  # the first last: where it is, all are
        number = f"{part:05}-of-{NUM_PARTS:05}.gguf"
        (folder / f"part-{number}").rename(folder / f"{model.stem}-{number}")
    return first


if __name__ == "__main__":
    print(split(Path(sys.argv[1]), Path(sys.argv[2])))
