"""Strings that tokenizers disagree on, as UTF-8 that is broken here and there."""

import unicodedata

# Whole scripts and blocks, by code points; what is unassigned in them is welcome.
RANGES = (
    (0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F),
    (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x5FF), (0x600, 0x77F), (0x780, 0x8FF), (0x900, 0xDFF),
    (0xE00, 0xFFF), (0x1000, 0x13FF), (0x1400, 0x17FF), (0x1800, 0x1AFF), (0x1B00, 0x1CFF), (0x1D00, 0x1FFF),
    (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x2BFF), (0x2C00, 0x2E7F), (0x2E80, 0x303F), (0x3040, 0x30FF),
    (0x3100, 0x33FF), (0x3400, 0x9FFF), (0x4E00, 0x4FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF), (0xE000, 0xF8FF),
    (0xF900, 0xFB4F), (0xFB50, 0xFDFF), (0xFE00, 0xFFFF), (0x10000, 0x10FFF), (0x11000, 0x11FFF),
    (0x12000, 0x16FFF), (0x17000, 0x1BFFF), (0x1C000, 0x1D7FF), (0x1D800, 0x1EFFF), (0x1F000, 0x1FAFF),
    (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0xE0000, 0xE01FF), (0x100000, 0x10FFFF), (0x0, 0x10FFFF),
)
SPACES = (" ", " ", " ", "  ", "\t", "\n", "\r", "\r\n", "\n\n", "\v", "\f", "\x85", "\xa0", "\u1680", "\u2000",
          "\u2007", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff", "\x1c")
CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'vE", "'Ll", "'M", "'D", "'l", "'r",
                "’s", "'ſ", "'\u212a", "''s", " 's", "'k", "'lL")
EMOJI = ("😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩", "0️⃣", "❤️", "🫠", "\U0001f9ff", "\u200d", "\ufe0f")
WORDS = ("the", "Hello", "world", "ing", "tokenizer", "KV", "cache", "straße", "naïve", "Привет", "мир", "你好",
         "世界", "こんにちは", "안녕", "שלום", "مرحبا", "สวัสดี", "नमस्ते", "return", "def", "int", "____", "==", "!=",
         "...", "//", "/*", "<0x0A>", "<s>", "</s>", "<|", "|>", "▁", "Ġ", "ø", "[PAD151646]")
BROKEN = (b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe4\xbd", b"\xed\xa0\x80", b"\xed\xbf\xbf",
          b"\xf0\x9f\x98", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf8\x88", b"\xfe", b"\xff", b"\xe0\x80\xaf")
DIGITS = "".join(chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Nd", "Nl", "No"))


def _run(rng):
    return rng.choice(((1, 2), (2, 6), (6, 40), (100, 300)) if rng.random() < 0.05 else ((1, 2), (2, 5)))


def _part(rng, specials):
    """A few characters of one sort, as bytes."""
    sort = rng.randrange(12)
    if sort == 0:
        return "".join(rng.choices(SPACES, k=rng.randint(*_run(rng)))).encode()
    if sort == 1:
        return (rng.choice(SPACES) * rng.randint(*_run(rng))).encode()
    if sort == 2:
        return (rng.choice(("", "I", "we", "é", "1")) + rng.choice(CONTRACTIONS)).encode()
    if sort == 3:
        return rng.choice(EMOJI).encode()
    if sort == 4:
        digits = DIGITS if rng.random() < 0.4 else "0123456789"
        return "".join(rng.choices(digits, k=rng.randint(*_run(rng)))).encode()
    if sort == 5:
        return (rng.choice(("", " ")) + rng.choice(WORDS)).encode()
    if sort == 6:
        return "".join(rng.choices("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\r\n ", k=rng.randint(*_run(rng)))).encode()
    if sort == 7:
        return "".join(chr(c) for c in rng.choices(range(0x20), k=rng.randint(1, 3))).encode()
    if sort == 8 and rng.random() < 0.3:
        return rng.choice(BROKEN) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 4))
    if sort == 9 and specials:
        text = rng.choice(specials)
        return text if rng.random() < 0.8 else text[: rng.randint(1, len(text))]
    first, last = rng.choice(RANGES)
    points = (rng.randint(first, last) for _ in range(rng.randint(*_run(rng))))
    return "".join(chr(c) for c in points).encode(errors="surrogatepass")


def generate(rng, count, specials):
    """`count` byte strings; `specials` are the texts of special tokens, which occur among them."""
    for _ in range(count):
        yield b"".join(_part(rng, specials) for _ in range(rng.randint(1, 12)))
