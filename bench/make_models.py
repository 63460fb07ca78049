"""Makes random-weight models of about 100M parameters, to measure weight types that the default
model does not have.

They have the shape of SmolLM2 but for sizes that every weight type divides (K-quants come in blocks
of 256), and the default model's tokenizer. Every byte is a pure function of this file and that
tokenizer.
"""

import sys
from pathlib import Path

import gguf

from bench.process import BenchError

ORACLE = Path(__file__).resolve().parents[1] / "tests" / "oracle"

HIDDEN, HEADS, HEAD_SIZE, FEED_FORWARD = 768, (12, 4), 64, 2048
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


def add_metadata(writer, name):
    writer.add_name(name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS[0])
    writer.add_head_count_kv(HEADS[1])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_SIZE)
    writer.add_rope_freq_base(100000.0)
    writer.add_vocab_size(VOCABULARY)


def write(weights, tokenizer_model, path):
    oracle = oracle_models()
    spec = oracle.Spec(
        f"random-100M-{weights}", "llama", gguf.GGMLQuantizationType[weights], HIDDEN, HEADS,
        HEAD_SIZE, FEED_FORWARD, VOCABULARY, layers=LAYERS, tied=True,
    )
    part = path.with_suffix(".part")  # renamed when complete, so that nobody reads half a model
    writer = gguf.GGUFWriter(part, "llama")
    add_metadata(writer, spec.name)
    copy_tokenizer(gguf.GGUFReader(tokenizer_model), writer)
    oracle.add_tensors(writer, spec)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def make_model(weights, tokenizer_model, folder, log):
    """The file of the model with those weights, made when it is missing."""
    path = folder / f"random-100M-{weights}.gguf"
    if path.exists():
        return path
    log(f"Making {path}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write(weights, tokenizer_model, path)
    except OSError as error:
        raise BenchError(f"cannot make {path}: {error}") from None
    return path
