"""The rules of the tree, as data and small functions. ARCHITECTURE.md and STYLE.md say why.

A rule takes a Tree and yields findings: one line each, "path:line: what is wrong".
"""

import pathlib
import re

import cpp_scan

# Module → what it may include besides itself and what it implements. A longer path is a part of a
# module with a row of its own; a name that ends in .h is that header alone.
MODULES = {
    'base': [],
    'kv': ['base'],
    'compute': ['base'],
    'text': ['base'],
    'model': ['base', 'compute', 'text'],
    'engine': ['base', 'kv', 'text'],
    'engine/exec': ['base', 'engine', 'engine/spec', 'kv', 'model', 'compute'],
    'engine/exec/one_answer': ['base', 'engine', 'engine/exec', 'engine/spec', 'kv', 'model',
                               'compute', 'text'],
    'engine/spec': ['base', 'engine', 'kv', 'model', 'compute'],
    'plan': ['base', 'kv', 'model/config.h', 'compute/kv_layout.h'],
    'sim': ['base', 'kv', 'engine', 'plan'],
    'server': ['base', 'text', 'engine'],
    'cli': ['base', 'kv', 'compute', 'text', 'model', 'engine', 'engine/exec', 'engine/spec',
            'plan', 'sim', 'server'],
}

# Public header → the module that implements it. Who may include the module may include the header;
# the header itself includes nothing but the standard library and headers of its rank or below.
PUBLIC = {
    'kvern/result.h': 'base',
    'kvern/sampling.h': 'base',
    'kvern/engine.h': 'engine',
    'kvern/ids.h': 'base',
    'kvern/paged_view.h': 'base',
    'kvern/kv_store.h': 'kv',
    'kvern/kv_tier.h': 'kv',
    'kvern/kv_report.h': 'kv',
    'kvern/kv.h': 'kv',
    'kvern/kvern_kv.h': 'kv',
}

# Third-party header → the folders that may include it. '' is everywhere.
THIRD_PARTY = {
    'fmt/': [''],
    'spdlog/': [''],
    'nlohmann/': [''],
    'xxhash.h': [''],
    'sodium': [''],
    'pcre2.h': ['text'],
    'utf8proc.h': ['text'],
    'unicode/': ['text'],
    'boost/': ['server', 'kv/tier'],
    'openssl/': ['server'],
    'prometheus/': ['server'],
    'zmq': ['server'],
    'msgpack': ['server'],
    'rocksdb/': ['kv/tier'],
    'CLI/': ['cli'],
}
TEST_ONLY = ('gtest/', 'gmock/', 'benchmark/', 'rapidcheck')

# Slow to compile, so only .cc files that heavy_includes.txt lists may include them.
HEAVY = ('nlohmann/json.hpp', 'spdlog/', 'boost/', 'CLI/', 'pcre2.h', 'rocksdb/')

SYSTEM = re.compile(r'(?:sys/|linux/|netinet/|arpa/)?\w+\.h|[a-z_]+')

MAX_FILE_LINES = 1000
USUAL_FILE_LINES = 600  # for 95 % of the files
MAX_FUNCTION_LINES = 70
MAX_LISTED_FUNCTION_LINES = 120  # kernels and forward passes, by name in ratchet.txt
MAX_PARAMETERS = 6
MAX_OPTION_FIELDS = 20
OPTION_STRUCT = re.compile(r'(Options|Params|Config|Settings|Flags)$')

TREE_ROOTS = ('src', 'include', 'examples', 'tests', 'scripts', 'bench', 'docs', 'cmake')
CPP = ('.cc', '.h', '.inc')

# What no source may say: (pattern, reason, where: a regular expression of paths).
BANNED = [
    (r'\b(?:secure_)?getenv\b', 'environment variables are read in src/cli only', r'src/(?!cli/)'),
    (r'(?<![\w.])/(?:home|root|work)/', 'a path of one machine', r''),
    (r'\b(?:TODO|FIXME|XXX)\b', 'unfinished work', r''),
    (r'\bDISABLED_|\bGTEST_SKIP\b|pytest\.(?:mark\.)?(?:skip|xfail)|unittest\.skip|\.skipTest\(',
     'a skipped test', r''),
    (r'\bRegistrar\b|\bREGISTER_\w+\s*\(|__attribute__\(\(constructor',
     'registration by static initialisers: add a row to the table', r'src/'),
    (r'^(?:static |inline |const |constexpr )*\w+(?: const)? \w+ = (?:\w+::)*Register\w*\(',
     'registration by static initialisers: add a row to the table', r'src/'),
    (r'\b_mm\d*_(?:mask_|maskz_)?(?:rcp|rsqrt)\w*|\b_mm\d*_\w*(?:dpbf16|cvtne2?ps_pbh|cvtneps)\w*',
     'N1: differs between CPUs', r'src/'),
    (r'-ffast-math|-Ofast|-ffp-contract=fast|-funsafe-math', 'N1: would change results', r''),
    (r'\bstd::(?:exp|exp2|expm1|log|log2|log10|pow|sin|cos|tan|tanh|erf)f?\s*\(',
     'N8: results must not depend on the C library', r'src/(?:compute|model|engine)/(?!.*_test\.cc)'),
    (r'#include <(?:ranges|source_location|format|expected|coroutine)>',
     'not in the C++ that both compilers accept', r'src/'),
]


class Tree:
    """The files of a checkout, read once. `files` maps each path, from the root, to its text."""

    def __init__(self, files, heavy=(), ratchet=''):
        self.files = files
        self.heavy = set(heavy)
        self.ratchet = Ratchet(ratchet)

    @classmethod
    def read(cls, root):
        files = {}
        for path in sorted(p for top in TREE_ROOTS for p in (root / top).rglob('*')):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not re.search(r'(^|/)__pycache__/|^tests/fuzz/[^/]+/', name):
                try:
                    files[name] = path.read_text(encoding='utf-8')
                except UnicodeDecodeError:
                    pass  # a binary golden file
        for path in [*root.glob('*.md'), *root.glob('CMake*')]:
            files[path.name] = path.read_text(encoding='utf-8')
        here = root / 'tests' / 'tidy'
        heavy = [tuple(line.split()) for line in _rows((here / 'heavy_includes.txt').read_text())]
        return cls(files, heavy, (here / 'ratchet.txt').read_text())

    def sources(self, prefix='src/'):
        return [(p, t) for p, t in self.files.items()
                if p.startswith(prefix) and pathlib.PurePath(p).suffix in CPP]


class Ratchet:
    """Rows "kind path[:function] value": what exceeds a budget today, and by how much it may."""

    def __init__(self, text):
        self.rows = {}
        for line in _rows(text):
            kind, name, value = line.split()
            self.rows[kind, name] = int(value)
        self.used = set()

    def check(self, kind, name, value, budget, most):
        """A finding's text, or None."""
        listed = self.rows.get((kind, name))
        self.used.add((kind, name))
        if listed is not None and value <= budget:
            return f'{kind} is {value} now: remove its row from ratchet.txt'
        if listed is not None and value < listed:
            return f'{kind} is {value} now: lower its row in ratchet.txt from {listed}'
        if value <= (listed or budget):
            return None if value <= most else f'{kind} {value} is over {most}, which no row may allow'
        return f'{kind} {value} is over {listed or budget}'


def _rows(text):
    return [line for line in text.splitlines() if line.strip() and not line.startswith('#')]


def is_test(path):
    return bool(re.search(r'_(test|fuzz|bench)\.cc$|^tests/|_test_util\.(h|cc)$|(^|/)testing/', path))


def is_inline(path):
    """foo-inl.h is a part of a .cc file, included once for each instruction set."""
    return path.endswith('-inl.h')


def is_generated(text):
    return 'Generated by' in text[:400]


def _module(path):
    """The row of MODULES that a path below src/ belongs to."""
    folders = path.split('/')[:-1]
    for length in range(len(folders), 0, -1):
        if '/'.join(folders[:length]) in MODULES:
            return '/'.join(folders[:length])
    return None


def check_includes(tree):
    """The module table, the public headers and the third-party table."""
    for path, text in tree.sources('include/'):
        yield from _check_public(tree, path, text)
    for path, text in tree.sources('examples/'):
        for include in cpp_scan.includes(text):
            if include.path not in PUBLIC and not SYSTEM.fullmatch(include.path):
                yield f'{path}:{include.line}: an example includes public headers only'
    for path, text in tree.sources():
        module = _module(path[len('src/'):])
        if module is None:
            yield f'{path}:1: not in a module of the table'
            continue
        for include in cpp_scan.includes(text):
            problem = (_check_own if include.quoted else _check_foreign)(tree, path, module, include)
            if problem:
                yield f'{path}:{include.line}: {problem}'


def _check_public(tree, path, text):
    if path[len('include/'):] not in PUBLIC:
        yield f'{path}:1: not in PUBLIC of tests/tidy/rules.py'
    for include in cpp_scan.includes(text):
        known = include.path in PUBLIC if include.quoted else SYSTEM.fullmatch(include.path)
        if not known:
            yield f'{path}:{include.line}: a public header may not include {include.path}'


def _check_own(tree, path, module, include):
    target = include.path
    if target in PUBLIC and f'include/{target}' in tree.files:
        if PUBLIC[target] in (module, 'base', *MODULES[module]):
            return None
        return f'{module} may not include {PUBLIC[target]} ("{target}")'
    if '/' not in target or f'src/{target}' not in tree.files:
        return f'"{target}" is not a file of src/, written as "module/file.h"'
    allowed = MODULES[module]
    if target in allowed or _module(target) in (module, *allowed):
        return None
    return f'{module} may not include {_module(target)} ("{target}")'


def _check_foreign(tree, path, module, include):
    target = include.path
    if target.startswith(TEST_ONLY):
        return None if is_test(path) else f'<{target}> belongs in tests'
    for header, folders in THIRD_PARTY.items():
        if target.startswith(header):
            if not any(f'src/{folder}/'.replace('//', '/') in path for folder in folders):
                return f'<{target}> is for {", ".join(folders)} only'
            return None
    return None if SYSTEM.fullmatch(target) else f'<{target}> is in no row of THIRD_PARTY'


def check_heavy_includes(tree):
    """Heavy headers only in listed .cc and -inl.h files; every row of the list is needed."""
    used = set()
    for path, text in tree.sources():
        for include in cpp_scan.includes(text):
            for heavy in HEAVY:
                if not include.path.startswith(heavy):
                    continue
                used.add((heavy, path))
                if not path.endswith(('.cc', '-inl.h')):
                    yield f'{path}:{include.line}: <{include.path}> is heavy: include it in a .cc'
                elif (heavy, path) not in tree.heavy and not is_test(path):
                    yield (f'{path}:{include.line}: <{include.path}> is heavy: '
                           f'add "{heavy} {path}" to heavy_includes.txt if it must be')
    for heavy, path in sorted(tree.heavy - used):
        yield f'tests/tidy/heavy_includes.txt:1: "{heavy} {path}" is not needed'


def check_sizes(tree):
    """Budgets of files, functions, parameters and option structs."""
    lengths = []
    for path, text in [*tree.sources(), *tree.sources('tests/'), *tree.sources('include/')]:
        if is_generated(text):
            continue
        lengths.append(text.count('\n'))
        yield from _file_findings(tree, path, text)
    long = sum(length > USUAL_FILE_LINES for length in lengths)
    if long * 20 > len(lengths):
        yield f'src:1: {long} of {len(lengths)} files are over {USUAL_FILE_LINES} lines; 5 % may be'
    for kind, name in sorted(tree.ratchet.rows.keys() - tree.ratchet.used):
        yield f'tests/tidy/ratchet.txt:1: row "{kind} {name}" names nothing: remove it'


def _file_findings(tree, path, text):
    num_lines = text.count('\n')
    if num_lines > MAX_FILE_LINES:
        yield f'{path}:1: {num_lines} lines, over {MAX_FILE_LINES}'
    if finding := tree.ratchet.check('file_lines', path, num_lines, USUAL_FILE_LINES, MAX_FILE_LINES):
        yield f'{path}:1: {finding}'
    functions, structs = cpp_scan.scan(text)
    longest = {}  # overloads share one row
    for function in functions:
        if function.num_parameters > MAX_PARAMETERS:
            yield (f'{path}:{function.line}: {function.name} has {function.num_parameters} '
                   f'parameters, over {MAX_PARAMETERS}')
        known = longest.get(function.name)
        if known is None or function.num_lines > known.num_lines:
            longest[function.name] = function
    for function in longest.values():
        finding = tree.ratchet.check('function_lines', f'{path}:{function.name}', function.num_lines,
                                     MAX_FUNCTION_LINES, MAX_LISTED_FUNCTION_LINES)
        if finding:
            yield f'{path}:{function.line}: {function.name}: {finding}'
    for struct in structs:
        if OPTION_STRUCT.search(struct.name) and struct.num_fields > MAX_OPTION_FIELDS:
            yield (f'{path}:{struct.line}: {struct.name} has {struct.num_fields} fields, '
                   f'over {MAX_OPTION_FIELDS}')


def check_banned_words(tree):
    """What BANNED lists."""
    for path, text in tree.files.items():
        if path.startswith('tests/tidy/'):
            continue
        for pattern, reason, where in BANNED:
            if not re.match(where, path):
                continue
            for match in re.finditer(pattern, text, re.MULTILINE):
                line = text.count('\n', 0, match.start()) + 1
                yield f'{path}:{line}: "{match.group(0).strip()}": {reason}'


def check_everything_is_built(tree):
    """Every source is named by a CMakeLists.txt at or above it, or by a script; every header is
    included somewhere."""
    included = {include.path for _, text in [*tree.sources(), *tree.sources('tests/')]
                for include in cpp_scan.includes(text)}
    for path in tree.files:
        pure = pathlib.PurePosixPath(path)
        if not path.startswith(('src/', 'tests/')) or pure.suffix not in CPP:
            continue
        below_src = path[len('src/'):] if path.startswith('src/') else path
        if pure.suffix == '.cc':
            if not _is_listed(tree, pure) and below_src not in included:
                yield f'{path}:1: no CMakeLists.txt lists it'
        elif below_src not in included:
            yield f'{path}:1: nothing includes it'


def _is_listed(tree, path):
    for folder in path.parents:
        lists = tree.files.get((folder / 'CMakeLists.txt').as_posix())
        if lists and re.search(rf'(?<![\w/.-]){re.escape(path.relative_to(folder).as_posix())}\b', lists):
            return True
    return any(path.as_posix() in text or path.name in text and name.startswith(f'{path.parent}/')
               for name, text in tree.files.items() if name.startswith(('cmake/', 'scripts/', 'tests/'))
               and not name.endswith(CPP))


def check_tested(tree):
    """Each header in src/ that has a .cc is used by some test, if only through what the test uses."""
    queue = [include.path for path, text in tree.files.items() if is_test(path)
             for include in cpp_scan.includes(text)]
    implements = {}  # header → .cc files that have no header of their own, such as rows of a table
    for path, text in tree.sources():
        if path.endswith('.cc') and not is_test(path) and path[:-3] + '.h' not in tree.files:
            for include in cpp_scan.includes(text):
                implements.setdefault(include.path, []).append(path)
    reached = set()
    while queue:
        header = queue.pop()
        if header not in reached:
            reached.add(header)
            for path in (f'src/{header}', f'src/{header[:-2]}.cc', *implements.get(header, [])):
                queue += [include.path for include in cpp_scan.includes(tree.files.get(path, ''))]
    for path, text in tree.sources():
        if (path.endswith('.h') and not is_test(path) and path[:-2] + '.cc' in tree.files
                and path[len('src/'):] not in reached):
            yield f'{path}:1: no test uses it'


def check_header_guards(tree):
    """Headers open with a comment, the contract, and guard themselves with #pragma once."""
    for path, text in [*tree.sources(), *tree.sources('include/')]:
        if not path.endswith('.h'):
            continue
        if not text.startswith('//'):
            yield f'{path}:1: a header opens with its contract, in a comment'
        if not is_inline(path) and len(re.findall(r'^#pragma once$', text, re.MULTILINE)) != 1:
            yield f'{path}:1: "#pragma once" must stand in it once'


ALL = [
    check_includes,
    check_heavy_includes,
    check_sizes,
    check_banned_words,
    check_everything_is_built,
    check_tested,
    check_header_guards,
]
