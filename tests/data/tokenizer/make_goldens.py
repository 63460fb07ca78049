"""Writes smollm.golden beside itself: llama.cpp's token ids for the default model's vocabulary.

    make_goldens.py PEERS_DIR MODEL

PEERS_DIR holds a llama.cpp build (scripts/build-llama-cpp). Each line is: flags (1 add_special,
2 parse_special), the text in hexadecimal, the ids.
"""

import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "peers"))

import tokenizer_peer  # noqa: E402
import unicode_strings  # noqa: E402

NUM_STRINGS = 300
CHAT = ("<|im_start|>system\nYou are terse.<|im_end|>\n<|im_start|>user\nWhat's 12 × 34567?<|im_end|>\n"
        "<|im_start|>assistant\n")
TEXTS = ("", " ", "Hello world", " Hello  world\n\n\tI'm, we'LL, 'tis 2024.", CHAT, "naïve Straße 你好，世界！ 👩‍👩‍👧‍👦",
         "def f(x):\n    return x != 0  # done\r\n", "a" * 100, " " * 100 + "x", "<repo_name><|endoftext|>")


def main():
    peers, model = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    llama = tokenizer_peer.compile_llama_tokenize(peers)
    specials = [b"<|im_start|>", b"<|im_end|>", b"<|endoftext|>", b"<file_sep>"]
    texts = [(flags, text.encode()) for text in TEXTS for flags in (0, 2)]
    generated = unicode_strings.generate(random.Random(20), NUM_STRINGS, specials)
    texts += [(i % 3, text) for i, text in enumerate(generated)]
    lines = tokenizer_peer.run(llama, model, stdin=tokenizer_peer.records(texts))
    with open(HERE / "smollm.golden", "w", encoding="ascii") as out:
        for (flags, text), ids in zip(texts, lines):
            if ids != "refused":
                out.write(f"{flags} {text.hex() or '-'} {ids}".rstrip() + "\n")


if __name__ == "__main__":
    main()
