"""Prefix lookup beside NVIDIA Dynamo's Rust RadixTree: radix_peer.py KV_CACHE_BENCH [ROUNDS]

Both hold 512 random texts of 32,768 tokens, which are 1,048,576 blocks, and look up one text, again
and again or each in turn, in alternating rounds. Dynamo matches 64-bit hashes that were computed
beforehand (their cost is printed, not counted); Kvern compares the tokens, pins what it finds and
lets go of it. Fails if Kvern is not at least twice as fast.
"""

import json
import pathlib
import statistics
import subprocess
import sys

PACKAGE = 'ai-dynamo-runtime==1.6.1'
NUM_TEXTS, TEXT_TOKENS, BLOCK_TOKENS = 512, 32768, 16
WANTED_RATIO = 2.0

DYNAMO = '''
import json, random, sys, time
from dynamo.llm import RadixTree, compute_block_hash_for_seq

num_texts, text_tokens, block_tokens = map(int, sys.argv[1:])
random.seed(1)
tree, texts, hashing = RadixTree(), [], []
for event in range(num_texts):
    tokens = random.choices(range(49152), k=text_tokens)
    start = time.perf_counter()
    hashes = compute_block_hash_for_seq(tokens, block_tokens)
    hashing.append(time.perf_counter() - start)
    texts.append(hashes)
    blocks = [{'block_hash': h, 'tokens_hash': h} for h in hashes]
    stored = {'event_id': event + 1, 'data': {'stored': {'parent_hash': None, 'blocks': blocks}}}
    tree.apply_event(0, json.dumps(stored).encode())

def seconds(hashes):
    start = time.perf_counter()
    scores = tree.find_matches(hashes).scores
    end = time.perf_counter()
    assert max(scores.values()) == len(hashes)
    return end - start

for line in sys.stdin:
    same = [seconds(texts[0]) for _ in range(500)]
    in_turn = [seconds(text) for text in texts]
    median = lambda times: sorted(times)[len(times) // 2] * 1e6
    print(json.dumps({'same': median(same), 'in_turn': median(in_turn),
                      'hashing': median(hashing)}), flush=True)
'''


def dynamo_python():
    """A Python that has Dynamo, made once."""
    folder = pathlib.Path('build/peers/dynamo-venv')
    python = folder / 'bin' / 'python'
    if not python.exists():
        subprocess.run(['/usr/bin/python3', '-m', 'venv', folder], check=True)
        subprocess.run([python, '-m', 'pip', 'install', '-q', PACKAGE], check=True)
    return python


def kvern_times(program):
    """Medians of microseconds: {'same': …, 'in_turn': …}."""
    output = subprocess.run(
        [program, '--benchmark_filter=lookup_32k', '--benchmark_format=json',
         '--benchmark_repetitions=7', '--benchmark_min_time=0.1'],
        check=True, capture_output=True, text=True).stdout
    times = {}
    for run in json.loads(output)['benchmarks']:
        if run.get('aggregate_name') == 'median':
            times[run['run_name'].split('/')[1]] = run['real_time']
    return times


def main():
    program = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    dynamo = subprocess.Popen([dynamo_python(), '-c', DYNAMO, str(NUM_TEXTS), str(TEXT_TOKENS),
                               str(BLOCK_TOKENS)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    samples = []
    for _ in range(rounds):
        print('measure', file=dynamo.stdin, flush=True)
        theirs = json.loads(dynamo.stdout.readline())
        samples.append((theirs, kvern_times(program)))
    dynamo.stdin.close()
    dynamo.wait()

    print(f'{NUM_TEXTS * TEXT_TOKENS // BLOCK_TOKENS} blocks, lookup of {TEXT_TOKENS} tokens, '
          f'medians of {rounds} rounds in microseconds')
    worst = float('inf')
    for name, label in (('same', 'one text again and again'), ('in_turn', 'each text in turn')):
        ratio = statistics.median(theirs[name] / ours[name] for theirs, ours in samples)
        print(f'  {label:26s} Dynamo {statistics.median(t[name] for t, _ in samples):7.1f}   '
              f'Kvern {statistics.median(o[name] for _, o in samples):7.1f}   {ratio:4.1f} times faster')
        worst = min(worst, ratio)
    print(f'  (Dynamo hashes the tokens of a text in '
          f'{statistics.median(t["hashing"] for t, _ in samples):.0f}, not included)')
    if worst < WANTED_RATIO:
        sys.exit(f'Kvern is only {worst:.1f} times as fast, {WANTED_RATIO} is wanted')


if __name__ == '__main__':
    main()
