"""Makes the tiny random-weight GGUF models that the tests run on.

    make_models.py OUTDIR [NAME...]

Every byte is a pure function of this file: weights come from a SHAKE-256 stream keyed by model and
tensor name, so each run, on any machine, writes the same files. Each model is a few layers deep, has
a byte-level BPE tokenizer and a chat template, and works with the whole command line. Between them
the models cover the architectures, head layouts, RoPE variants and weight types that Kvern reads,
with sizes that need padding: head sizes 20 and 40, vocabularies that are no multiple of 16, a group
ratio of 7, and feed-forward widths that are no multiple of 32 where the weight type allows it.

K-quants have no quantiser in the gguf package: their blocks are random bits under f16 scales chosen
to give the wanted spread, which also exercises every bit of the format.
"""

import hashlib
import sys
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import TokenType as Kind

LOGIT_STD = 3.0  # wanted spread of the logits
EMBEDDING_STD = (
    0.25  # small beside the layers' outputs, so that a tied head does not echo its input
)
CONTEXT_LENGTH = 2048
LLAMA3_FACTORS = [1, 1, 1, 1, 1, 1.25, 1.5, 2, 3, 4, 6, 8, 8, 8, 8, 8]


@dataclass(frozen=True)
class Spec:
    """One model. `types` names the weight type of a tensor kind ("attn_v", "token_embd", ...); the
    rest have `weights`. `heads` is (query heads, KV heads). `outliers` channels of each KV head
    have a K that is 8 to 20 times as large."""

    name: str
    arch: str
    weights: Type
    hidden: int
    heads: tuple
    head_dim: int
    n_ff: int
    vocab: int
    layers: int = 3
    tied: bool = False
    eps: float = 1e-5
    rope_base: float = 10000.0
    rope_linear: float = 1.0
    rope_factors: bool = False
    pre: str = "smollm"
    add_bos: bool = False
    outliers: int = 0
    types: dict = field(default_factory=dict)


K_MIX = {
    "token_embd": Type.Q6_K,
    "attn_v": Type.Q6_K,
    "attn_output": Type.Q5_K,
    "ffn_down": Type.Q5_K,
}

# fmt: off
SPECS = [
    # Llama: every head layout, RoPE variant and weight type.
    Spec("tiny-llama-mha-f32", "llama", Type.F32, 64, (4, 4), 16, 150, 289, pre="gpt-2"),
    Spec("tiny-llama-gqa7-f16", "llama", Type.F16, 140, (7, 1), 20, 172, 289, tied=True, eps=1e-3),
    Spec("tiny-llama-mqa-bf16", "llama", Type.BF16, 160, (4, 1), 40, 200, 301),
    Spec("tiny-llama-gqa-q4_1", "llama", Type.Q4_1, 192, (6, 2), 32, 512, 304, layers=4, tied=True,
         rope_base=1e5, types={"token_embd": Type.Q8_0}),
    Spec("tiny-llama-gqa-q5_0", "llama", Type.Q5_0, 128, (8, 2), 16, 352, 295, tied=True),
    Spec("tiny-llama-linear-q5_1", "llama", Type.Q5_1, 128, (4, 4), 32, 288, 293, rope_linear=2.0),
    Spec("tiny-llama3-gqa-q8_0", "llama", Type.Q8_0, 128, (4, 2), 32, 320, 299, rope_base=5e5,
         rope_factors=True, pre="llama-bpe", add_bos=True),
    Spec("tiny-llama3-tied-f32", "llama", Type.F32, 96, (3, 1), 32, 172, 299, rope_base=5e5,
         rope_factors=True, tied=True, pre="llama-bpe", add_bos=True),
    Spec("tiny-mistral-gqa-q4_0", "llama", Type.Q4_0, 160, (8, 2), 32, 416, 291, eps=1e-2,
         rope_base=1e6),
    Spec("tiny-llama-gqa-k_mix", "llama", Type.Q4_K, 256, (8, 4), 32, 512, 290, tied=True,
         types=K_MIX),
    # Qwen2: biases on Q, K and V; NeoX RoPE.
    Spec("tiny-qwen2-gqa7-q8_0", "qwen2", Type.Q8_0, 224, (14, 2), 16, 320, 300, tied=True,
         rope_base=1e6, pre="qwen2"),
    Spec("tiny-qwen2-mha-f32", "qwen2", Type.F32, 80, (4, 4), 20, 100, 297, eps=1e-6,
         rope_base=1e6, pre="qwen2"),
    Spec("tiny-qwen2-gqa-q4_1", "qwen2", Type.Q4_1, 128, (4, 2), 32, 384, 302, rope_base=1e6,
         pre="qwen2"),
    # Qwen3: normalised Q and K; a head size that is not hidden / heads.
    Spec("tiny-qwen3-gqa-f32", "qwen3", Type.F32, 96, (4, 2), 40, 150, 297, tied=True, eps=1e-3,
         rope_base=1e6, pre="qwen2"),
    Spec("tiny-qwen3-gqa-bf16", "qwen3", Type.BF16, 96, (6, 2), 32, 180, 305, rope_base=1e6,
         pre="qwen2"),
    Spec("tiny-qwen3-gqa-q4_0", "qwen3", Type.Q4_0, 128, (4, 1), 64, 320, 301, tied=True,
         rope_base=1e6, pre="qwen2"),
]
# fmt: on

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = (
    "Ġ t,Ġ a,h e,i n,r e,o n,Ġt he,e r,Ġ s,a t,Ġ w,Ġ o,e n,Ġ c,i s,o r,Ġ f,n d,Ġa nd,e s,in g,o u,"
    "Ġ m,Ġ p,e d,Ġo f,Ġ in,Ġt o,l l,Ċ Ċ"
).split(",")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


# ---- random numbers ----------------------------------------------------------------------------


def random_bytes(key, count):
    return np.frombuffer(hashlib.shake_256(key.encode()).digest(count), np.uint8)


def uniform(key, count):
    """`count` float32 in [0, 1), multiples of 2^-16."""
    return random_bytes(key, 2 * count).view("<u2").astype(np.float32) * np.float32(2.0**-16)


def normal(key, shape):
    """Nearly normal float32, mean 0, standard deviation 1: the scaled sum of four uniform integers,
    so that no libm has a say in its bits."""
    count = int(np.prod(shape))
    words = random_bytes(key, 8 * count).view("<u2").reshape(count, 4).astype(np.int32)
    return ((words.sum(1) - 131070).astype(np.float32) * np.float32(1 / 37837.2)).reshape(shape)


# ---- tensors -----------------------------------------------------------------------------------

# Standard deviation of a K-quant weight per unit of its block scale, for uniformly random bits (and
# for Q4_K and Q5_K a minimum scale of half the largest quant, which centres the weights on zero).
K_BLOCK_STD = {Type.Q4_K: 257.0, Type.Q5_K: 528.0, Type.Q6_K: 1366.0}


def random_k_blocks(key, shape, std, kind):
    """Bytes of a K-quant matrix whose weights have the given standard deviation."""
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    count = shape[0] * shape[1] // block_size
    blocks = random_bytes(key, count * block_bytes).reshape(count, block_bytes).copy()
    scale = (uniform(key + "/scale", count) + np.float32(0.5)) * np.float32(std / K_BLOCK_STD[kind])

    def put(offset, values):
        blocks[:, offset : offset + 2] = values.astype("<f2").view(np.uint8).reshape(count, 2)

    if kind == Type.Q6_K:
        put(block_bytes - 2, scale)
    else:
        put(0, scale)
        put(2, scale * np.float32(7.5 if kind == Type.Q4_K else 15.5))
    return blocks.reshape(shape[0], -1)


def random_matrix(key, shape, std, kind, gains=1):
    """A [rows, columns] matrix in `kind`'s bytes; rows differ in scale, as trained ones do, and by
    `gains`, which K-quants do not take."""
    if kind in K_BLOCK_STD:
        return random_k_blocks(key, shape, std, kind)
    rows = ((uniform(key + "/rows", shape[0]) + np.float32(0.5)) * gains)[:, None]
    return gguf.quants.quantize(normal(key, shape) * rows * np.float32(std), kind)


class TensorWriter:
    """Adds one model's tensors to a GGUF writer."""

    def __init__(self, writer, spec):
        self.writer, self.spec = writer, spec

    def matrix(self, name, rows, columns, gain=1.0, std=None, gains=1):
        """Random [rows, columns]; without `std`, `gain` times what keeps unit variance. `gains` are
        of single rows."""
        spec, part = self.spec, name.split(".")[-1]
        kind = spec.types.get(part, spec.weights)
        std = gain / columns**0.5 if std is None else std
        data = random_matrix(f"{spec.name}/{name}", (rows, columns), std, kind, gains)
        self.writer.add_tensor(name + ".weight", data, raw_dtype=kind)

    def norm(self, name, size, gain=1.0):
        values = (uniform(f"{self.spec.name}/{name}", size) + np.float32(0.5)) * np.float32(gain)
        self.writer.add_tensor(name + ".weight", values)

    def bias(self, name, size, std):
        values = normal(f"{self.spec.name}/{name}.bias", (size,)) * np.float32(std)
        self.writer.add_tensor(name + ".bias", values)


def key_gains(spec, prefix):
    """Of the rows of attn_k: those of other channels are 1."""
    gains = np.ones((spec.heads[1], spec.head_dim), np.float32)
    key = f"{spec.name}/{prefix}outliers"
    for head in range(spec.heads[1]):
        channels = np.argsort(uniform(f"{key}/{head}", spec.head_dim), kind="stable")
        sizes = uniform(f"{key}/{head}/sizes", spec.outliers) * np.float32(12) + np.float32(8)
        gains[head, channels[: spec.outliers]] = sizes
    return gains.ravel()


def add_layer(tensors, spec, layer):
    prefix = f"blk.{layer}."
    q_size, kv_size = spec.heads[0] * spec.head_dim, spec.heads[1] * spec.head_dim
    tensors.norm(prefix + "attn_norm", spec.hidden)
    tensors.matrix(prefix + "attn_q", q_size, spec.hidden, gain=1.4)
    gains = key_gains(spec, prefix) if spec.outliers else 1
    tensors.matrix(prefix + "attn_k", kv_size, spec.hidden, gain=1.4, gains=gains)
    tensors.matrix(prefix + "attn_v", kv_size, spec.hidden)
    if spec.arch == "qwen2":
        for name, size in (("attn_q", q_size), ("attn_k", kv_size), ("attn_v", kv_size)):
            tensors.bias(prefix + name, size, std=0.5)
    if spec.arch == "qwen3":
        tensors.norm(prefix + "attn_q_norm", spec.head_dim, gain=1.4)
        tensors.norm(prefix + "attn_k_norm", spec.head_dim, gain=1.4)
    tensors.matrix(prefix + "attn_output", spec.hidden, q_size, gain=1.5)
    tensors.norm(prefix + "ffn_norm", spec.hidden)
    tensors.matrix(prefix + "ffn_gate", spec.n_ff, spec.hidden, gain=1.2)
    tensors.matrix(prefix + "ffn_up", spec.n_ff, spec.hidden)
    tensors.matrix(prefix + "ffn_down", spec.hidden, spec.n_ff, gain=1.5)


def add_tensors(writer, spec):
    tensors = TensorWriter(writer, spec)
    tensors.matrix("token_embd", spec.vocab, spec.hidden, std=EMBEDDING_STD)
    if spec.rope_factors:
        writer.add_tensor(
            "rope_freqs.weight", np.array(LLAMA3_FACTORS[: spec.head_dim // 2], np.float32)
        )
    for layer in range(spec.layers):
        add_layer(tensors, spec, layer)
    if spec.tied:
        tensors.norm("output_norm", spec.hidden, gain=LOGIT_STD / EMBEDDING_STD / spec.hidden**0.5)
    else:
        tensors.norm("output_norm", spec.hidden)
        tensors.matrix("output", spec.vocab, spec.hidden, gain=LOGIT_STD)


# ---- metadata ----------------------------------------------------------------------------------


def byte_tokens():
    """GPT-2's printable character for each of the 256 bytes, in byte order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spare = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]


def merges(spec):
    """As many as the vocabulary has room for."""
    return MERGES[: spec.vocab - 256 - len(SPECIALS)]


def vocabulary(spec):
    """Tokens and their types. As in real models, Llama has special tokens first, Qwen last."""
    text = byte_tokens() + [merge.replace(" ", "") for merge in merges(spec)]
    tokens = text + SPECIALS if spec.arch.startswith("qwen") else SPECIALS + text
    unused = [f"<unused_{i}>" for i in range(spec.vocab - len(tokens))]
    kinds = [Kind.CONTROL if token in SPECIALS else Kind.NORMAL for token in tokens]
    return tokens + unused, kinds + [Kind.UNUSED] * len(unused)


def add_metadata(writer, spec):
    writer.add_name(spec.name)
    writer.add_context_length(CONTEXT_LENGTH)
    writer.add_embedding_length(spec.hidden)
    writer.add_block_count(spec.layers)
    writer.add_feed_forward_length(spec.n_ff)
    writer.add_head_count(spec.heads[0])
    writer.add_head_count_kv(spec.heads[1])
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.eps)
    writer.add_rope_dimension_count(spec.head_dim)
    writer.add_rope_freq_base(spec.rope_base)
    if spec.rope_linear != 1.0:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(spec.rope_linear)
    writer.add_vocab_size(spec.vocab)

    tokens, kinds = vocabulary(spec)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(spec.pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges(spec))
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(spec.add_bos)
    writer.add_chat_template(CHAT_TEMPLATE)


def write_model(spec, path):
    part = path.with_suffix(".part")  # renamed when complete, so that nobody reads half a model
    writer = gguf.GGUFWriter(part, spec.arch)
    add_metadata(writer, spec)
    add_tensors(writer, spec)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)


def main(argv):
    if not argv:
        sys.exit("usage: make_models.py OUTDIR [NAME...]")
    out = Path(argv[0])
    unknown = set(argv[1:]) - {spec.name for spec in SPECS}
    if unknown:
        sys.exit(f"make_models.py: no model is called {sorted(unknown)[0]}; see SPECS")
    out.mkdir(parents=True, exist_ok=True)
    for spec in SPECS:
        if not argv[1:] or spec.name in argv[1:]:
            write_model(spec, out / f"{spec.name}.gguf")


if __name__ == "__main__":
    main(sys.argv[1:])
