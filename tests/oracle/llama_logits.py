"""llama.cpp's logits for given token ids, for making goldens and for measuring its fidelity.

    from llama_logits import LlamaLogits
    llama = LlamaLogits(PEERS_DIR)
    rows = llama(MODEL, [[1, 2, 3], ...], vocab, first=0, kv="f32", flash="off")

PEERS_DIR holds a llama.cpp build: sources under src/vendor/llama.cpp, libraries and programs under
lb/bin. A small C++ program (llama_logits.cc) is compiled against it on first use, beside those
libraries, so that structure layouts are the headers' own. CPU only.
"""

import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_suffix(".cc")


class LlamaLogits:
    def __init__(self, peers_dir):
        root = Path(peers_dir).resolve()
        self.bin = root / "lb" / "bin"
        self.source_root = root / "src"
        headers = self.source_root / "vendor" / "llama.cpp"
        for needed in (self.bin / "libllama.so", headers / "include" / "llama.h"):
            if not needed.exists():
                raise FileNotFoundError(f"{needed}: missing; {root} must hold a llama.cpp build")
        self.program = self.bin / "kvern-llama-logits"
        if not self.program.exists() or self.program.stat().st_mtime < SOURCE.stat().st_mtime:
            command = ["g++", "-std=c++17", "-O2", SOURCE, "-o", self.program]
            command += [f"-I{headers / 'include'}", f"-I{headers / 'ggml' / 'include'}"]
            command += [f"-L{self.bin}", f"-Wl,-rpath,{self.bin}"]
            command += ["-lllama", "-lggml", "-lggml-base"]
            subprocess.run(command, check=True)

    @property
    def version(self):
        """Of the source package that llama.cpp was built from."""
        info = (self.source_root / "PKG-INFO").read_text().splitlines()
        fields = dict(line.split(": ", 1) for line in info if ": " in line)
        return f"{fields['Name']} {fields['Version']}"

    def __call__(self, model, sequences, vocab, first=0, kv="f16", flash="auto", threads=2):
        """Float32 logits [rows, vocab] of positions `first` … of each sequence, in order."""
        with tempfile.TemporaryDirectory() as folder:
            ids, out = Path(folder) / "ids.txt", Path(folder) / "logits.f32"
            lines = (" ".join(map(str, sequence)) + "\n" for sequence in sequences)
            ids.write_text("".join(lines))
            settings = [str(first), kv, flash, str(threads)]
            subprocess.run([self.program, model, ids, out, *settings], check=True)
            return np.fromfile(out, np.float32).reshape(-1, vocab)

    def tokenize(self, model, text_file):
        """Token ids of a text file as llama-perplexity reads it: BOS where the model adds one,
        backslashes left alone, special tokens in the text not parsed."""
        command = [self.bin / "llama-tokenize", "-m", model, "-f", text_file, "--ids"]
        command.append("--no-escape")
        listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        start, end = listing.rindex("["), listing.rindex("]")
        return [int(token) for token in listing[start + 1 : end].split(",")]
