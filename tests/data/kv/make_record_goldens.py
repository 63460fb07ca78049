#!/usr/bin/env python3
"""Makes record.bin and record_mac.bin beside this script, from docs/record-format.md alone.

A second writer, so that kv/record_test.cc compares the library with something other than itself.
Needs the Python package xxhash. --hex prints record.bin as the document shows it.
"""

import hashlib
import pathlib
import struct
import sys

import xxhash

UNSIGNED, FLOAT, TEXT, DIGEST = 1, 2, 3, 4


def blake2b(*parts, key=b''):
    return hashlib.blake2b(b''.join(parts), digest_size=32, key=key).digest()


def fingerprint(numerics_version, fields):
    fields = sorted(fields + [('numerics_version', UNSIGNED, struct.pack('<Q', numerics_version))])
    out = struct.pack('<I', len(fields))
    for name, kind, value in fields:
        out += struct.pack('<BBH', len(name), kind, len(value)) + name.encode() + value
    return out


def record(fields, identity, tokens, payload, key=b''):
    tail = struct.pack(f'<{len(tokens)}I', *tokens) + fields
    header_bytes = -(-(176 + len(tail)) // 64) * 64
    first = b'KvernRec' + struct.pack('<IIQQ', 1, 1 if key else 0, header_bytes + len(payload), len(payload))
    rest = (identity['namespace'] + identity['parent']
            + struct.pack('<QIIIIII', identity['first_position'], identity['group'], identity['kind'],
                          identity['window'], identity['block_tokens'], len(tokens), len(fields))
            + tail)
    rest += bytes(header_bytes - 80 - len(rest)) + payload
    mac = blake2b(first, rest, key=key) if key else bytes(32)
    checksum = xxhash.xxh3_128_intdigest(first + mac + rest).to_bytes(16, 'little')
    return first + checksum + mac + rest


def hex_dump(data):
    lines = (f'{at:04x}  {data[at:at + 16].hex(" ")}' for at in range(0, len(data), 16))
    return '\n'.join(lines)


FIELDS = fingerprint(3, [
    ('adapter', TEXT, b'none'),
    ('group.0', TEXT, b'kind=full window=0 block_bytes=64 block_tokens=4 row_independent=1'),
    ('layers', UNSIGNED, struct.pack('<Q', 2)),
    ('rope.base', FLOAT, struct.pack('<d', 10000.0)),
    ('weights', DIGEST, blake2b(b'weights')),
])
IDENTITY = {
    'namespace': blake2b(b'tenant'), 'parent': bytes(range(32)), 'first_position': 8,
    'group': 0, 'kind': 0, 'window': 0, 'block_tokens': 4,
}
TOKENS = [1, 300, 70000]
PAYLOAD = bytes(i * 7 % 256 for i in range(64))
KEY = bytes(range(128, 160))

here = pathlib.Path(__file__).parent
plain = record(FIELDS, IDENTITY, TOKENS, PAYLOAD)
(here / 'record.bin').write_bytes(plain)
(here / 'record_mac.bin').write_bytes(record(FIELDS, IDENTITY, TOKENS, PAYLOAD, KEY))
if '--hex' in sys.argv:
    print(hex_dump(plain))
    key = blake2b(IDENTITY['parent'], blake2b(FIELDS), IDENTITY['namespace'],
                  struct.pack(f'<{len(TOKENS)}I', *TOKENS))
    print('fingerprint', blake2b(FIELDS).hex(), '\nkey        ', key.hex(),
          '\naddress    ', blake2b(key, struct.pack('<I', IDENTITY['group'])).hex())
