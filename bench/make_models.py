"""Makes random-weight models of about 100M parameters, to measure what the default model does not
have: weight types, head sizes, channels of K that are many times larger than the others.

    python -m bench.make_models TOKENIZER_MODEL FOLDER [--weights Q4_1] [--head-size 96] [--outliers 2]

They have the shape of SmolLM2 but for sizes that every weight type divides (K-quants come in blocks
of 256), and the default model's tokenizer. Every byte is a pure function of this file and that
tokenizer.
"""

import argparse
import sys
from pathlib import Path

import gguf

from bench.process import BenchError

ORACLE = Path(__file__).resolve().parents[1] / "tests" / "oracle"

HIDDEN, FEED_FORWARD = 768, 2048
HEADS = {64: (12, 4), 96: (8, 2), 128: (6, 2)}  # query and KV heads by their size
LAYERS, VOCABULARY, CONTEXT = 10, 49152, 8192  # 101M parameters, 38M of them the vocabulary's


def oracle_models():
    """The module that makes the tests' tiny models: it has the random tensors of every type."""
    sys.path.insert(0, str(ORACLE))
    import make_models

    return make_models


def copy_tokenizer(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("tokenizer."):
            kinds = field.types
            inner = kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kinds[0], sub_type=inner)


def add_metadata(writer, spec):
    writer.add_name(spec.name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(spec.heads[0])
    writer.add_head_count_kv(spec.heads[1])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(100000.0)
    writer.add_vocab_size(VOCABULARY)


def spec_of(weights, head_size, outliers):
    name = f"random-100M-{weights}"
    if head_size != 64:
        name += f"-head{head_size}"
    if outliers:
        name += f"-outliers{outliers}"
    return oracle_models().Spec(
        name, "llama", gguf.GGMLQuantizationType[weights], HIDDEN, HEADS[head_size], head_size,
        FEED_FORWARD, VOCABULARY, layers=LAYERS, tied=True, outliers=outliers,
    )


def write(spec, tokenizer_model, path):
    part = path.with_suffix(".part")  # renamed when complete, so that nobody reads half a model
    writer = gguf.GGUFWriter(part, "llama")
    add_metadata(writer, spec)
    copy_tokenizer(gguf.GGUFReader(tokenizer_model), writer)
    oracle_models().add_tensors(writer, spec)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def make_model(weights, tokenizer_model, folder, log, head_size=64, outliers=0):
    """The file of the model with those weights, made when it is missing."""
    spec = spec_of(weights, head_size, outliers)
    path = folder / f"{spec.name}.gguf"
    if path.exists():
        return path
    log(f"Making {path}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write(spec, tokenizer_model, path)
    except OSError as error:
        raise BenchError(f"cannot make {path}: {error}") from None
    return path


def main():
    parser = argparse.ArgumentParser(description="makes a random-weight model of 100M parameters")
    parser.add_argument("tokenizer_model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--weights", default="Q4_1")
    parser.add_argument("--head-size", type=int, choices=HEADS, default=64)
    parser.add_argument("--outliers", type=int, default=0, help="channels of each head's K")
    args = parser.parse_args()
    if args.weights not in gguf.GGMLQuantizationType.__members__:
        sys.exit(f"make_models.py: --weights: {args.weights} is no type of GGUF")
    try:
        print(make_model(args.weights, args.tokenizer_model, args.folder, lambda text: None,
                         args.head_size, args.outliers))
    except BenchError as error:
        sys.exit(f"make_models.py: {error}")


if __name__ == "__main__":
    main()
