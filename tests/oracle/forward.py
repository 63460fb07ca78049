"""A plain numpy forward pass over a GGUF's dequantised weights: the reference for Kvern's logits.

    forward.py MODEL --tokens 1,2,3 --out logits.npy [--dtype f32|f64] [--kv q8r]

Reads the architectures llama, qwen2 and qwen3. It shares nothing with the engine: weights are
dequantised by the gguf package, activations and matrix products are of `dtype` (numpy's BLAS),
and K and V are never rounded, unless an integer type of them is wanted (kv_types.py). Whatever the dtype, RoPE angles, the sums of RMSNorm and softmax,
and the reciprocals made from them are float64. With f64 everything is, which makes the better
reference where the model is small.
"""

import argparse
import sys

import gguf
import numpy as np

import kv_types

ARCHITECTURES = {"llama": "interleaved", "qwen2": "neox", "qwen3": "neox"}
DTYPES = {"f32": np.float32, "f64": np.float64}


class Config:
    """The hyperparameters that the forward pass needs, from GGUF metadata."""

    def __init__(self, reader):
        self.arch = reader.get_field("general.architecture").contents()
        if self.arch not in ARCHITECTURES:
            known = ", ".join(ARCHITECTURES)
            raise ValueError(f"general.architecture: {self.arch} is none of {known}")

        def get(key, default=None):
            value = reader.get_field(f"{self.arch}.{key}")
            if value is None and default is None:
                raise ValueError(f"{self.arch}.{key}: missing from the metadata")
            return default if value is None else value.contents()

        self.layers = get("block_count")
        self.hidden = get("embedding_length")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.head_dim = get("attention.key_length", self.hidden // self.heads)
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.rope_dims = get("rope.dimension_count", self.head_dim)
        self.rope_base = get("rope.freq_base", 10000.0)
        scaling = get("rope.scaling.type", "none")
        if scaling not in ("none", "linear"):
            raise ValueError(f"{self.arch}.rope.scaling.type: {scaling} is neither none nor linear")
        self.rope_scale = get("rope.scaling.factor", 1.0) if scaling == "linear" else 1.0
        bos = reader.get_field("tokenizer.ggml.bos_token_id")
        self.bos = None if bos is None else bos.contents()


class Model:
    """Weights are dequantised on first use and kept, in `dtype`. `kv` is a type of kv_types.LIMITS;
    of other types nothing is rounded."""

    def __init__(self, path, dtype=np.float32, kv="f32"):
        reader = gguf.GGUFReader(path)
        self.config = Config(reader)
        self.dtype = dtype
        self.kv = kv
        self._stored = {tensor.name: tensor for tensor in reader.tensors}
        self._weights = {}

    @property
    def vocab(self):
        return int(self._stored["token_embd.weight"].shape[1])

    def weight(self, name):
        """The named tensor as [rows, columns], or None where the model has none."""
        if name not in self._weights:
            tensor = self._stored.get(name)
            if tensor is None:
                return None
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            self._weights[name] = np.ascontiguousarray(values, self.dtype)
        return self._weights[name]

    def linear(self, x, name):
        y = x @ self.weight(name + ".weight").T
        bias = self.weight(name + ".bias")
        return y if bias is None else y + bias

    def rms_norm(self, x, name):
        mean = np.square(x, dtype=np.float64).mean(-1, keepdims=True)
        scale = (1.0 / np.sqrt(mean + self.config.eps)).astype(self.dtype)
        return x * scale * self.weight(name + ".weight")

    def rope_tables(self, count):
        """cos and sin, each [count, 1, rope_dims / 2], of positions 0 … count - 1."""
        half = self.config.rope_dims // 2
        frequency = np.float64(self.config.rope_base) ** (-np.arange(half) / half)
        frequency /= self.config.rope_scale
        factors = self.weight("rope_freqs.weight")
        if factors is not None:
            frequency = frequency / factors.astype(np.float64)
        angle = np.arange(count, dtype=np.float64)[:, None, None] * frequency
        return np.cos(angle).astype(self.dtype), np.sin(angle).astype(self.dtype)

    def rotate(self, x, tables):
        """Applies RoPE to x [tokens, heads, head_dim]."""
        dims, (cos, sin) = self.config.rope_dims, tables
        if ARCHITECTURES[self.config.arch] == "interleaved":
            first, second = np.s_[..., 0:dims:2], np.s_[..., 1:dims:2]
        else:
            first, second = np.s_[..., 0 : dims // 2], np.s_[..., dims // 2 : dims]
        out = x.copy()
        out[first] = x[first] * cos - x[second] * sin
        out[second] = x[first] * sin + x[second] * cos
        return out

    def attention(self, x, prefix, tables):
        config, tokens = self.config, len(x)
        q = self.linear(x, prefix + "attn_q").reshape(tokens, config.heads, config.head_dim)
        k = self.linear(x, prefix + "attn_k").reshape(tokens, config.kv_heads, config.head_dim)
        v = self.linear(x, prefix + "attn_v").reshape(tokens, config.kv_heads, config.head_dim)
        if config.arch == "qwen3":
            q = self.rms_norm(q, prefix + "attn_q_norm")
            k = self.rms_norm(k, prefix + "attn_k_norm")
        q, k = self.rotate(q, tables), self.rotate(k, tables)
        q, k, v = kv_types.stored(q, k, v, self.kv)

        group = config.heads // config.kv_heads
        out = np.empty_like(q)
        future = np.triu(np.ones((tokens, tokens), bool), 1)
        for head in range(config.heads):
            scores = q[:, head] @ k[:, head // group].T * self.dtype(config.head_dim**-0.5)
            scores[future] = -np.inf
            scores -= scores.max(-1, keepdims=True)
            np.exp(scores, out=scores)
            total = scores.sum(-1, keepdims=True, dtype=np.float64)
            out[:, head] = (scores @ v[:, head // group]) * (1.0 / total).astype(self.dtype)
        return self.linear(out.reshape(tokens, -1), prefix + "attn_output")

    def feed_forward(self, x, prefix):
        gate = self.linear(x, prefix + "ffn_gate")
        with np.errstate(over="ignore"):  # exp(-gate) may reach infinity, where silu is -0
            gate /= 1 + np.exp(-gate)
        return self.linear(gate * self.linear(x, prefix + "ffn_up"), prefix + "ffn_down")

    def logits(self, tokens, first=0):
        """Logits [len(tokens) - first, vocab] of positions `first` and on of one sequence."""
        x = self.weight("token_embd.weight")[np.asarray(tokens)]
        tables = self.rope_tables(len(x))
        for layer in range(self.config.layers):
            prefix = f"blk.{layer}."
            x = x + self.attention(self.rms_norm(x, prefix + "attn_norm"), prefix, tables)
            x = x + self.feed_forward(self.rms_norm(x, prefix + "ffn_norm"), prefix)
        x = self.rms_norm(x[first:], "output_norm")
        return self.linear(x, "output" if "output.weight" in self._stored else "token_embd")


def main():
    parser = argparse.ArgumentParser(description="numpy forward pass of a GGUF model")
    parser.add_argument("model")
    parser.add_argument("--tokens", required=True, help="comma-separated token ids")
    parser.add_argument("--out", required=True, help="file to write: .npy, [tokens, vocab]")
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--kv", choices=["f32", *kv_types.LIMITS], default="f32")
    args = parser.parse_args()
    try:
        model = Model(args.model, DTYPES[args.dtype], args.kv)
        tokens = [int(token) for token in args.tokens.split(",")]
    except (OSError, ValueError) as error:
        sys.exit(f"forward.py: {error}")
    if not all(0 <= token < model.vocab for token in tokens):
        sys.exit(f"forward.py: --tokens: ids must be 0 to {model.vocab - 1}")
    np.save(args.out, model.logits(tokens))


if __name__ == "__main__":
    main()
