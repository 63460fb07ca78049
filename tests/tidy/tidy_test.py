"""The tree obeys its rules, and each rule catches what it is for.

Usage: tidy_test.py [--compiler g++] [--cache FILE]
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import cpp_scan
import rules

ROOT = pathlib.Path(__file__).resolve().parents[2]
options = argparse.Namespace(compiler='g++', cache=None)


def findings(rule, files, **tree):
    return list(rule(rules.Tree(files, **tree)))


def lines(count):
    return 'int x;\n' * count


def function(num_lines, name='Long'):
    return f'void {name}() {{\n' + '  Work();\n' * (num_lines - 2) + '}\n'


class TheTree(unittest.TestCase):
    """Every rule, on this checkout."""

    def test_obeys_the_rules(self):
        tree = rules.Tree.read(ROOT)
        found = [finding for rule in rules.ALL for finding in rule(tree)]
        if found:
            self.fail('\n' + '\n'.join(found))

    def test_headers_compile_alone(self):
        found = HeaderCheck(options.compiler, options.cache).run(ROOT)
        if found:
            self.fail('\n' + '\n'.join(found))


class HeaderCheck:
    """Compiles each header by itself, unless the build does: where the first include of a .cc is the
    header of its name. Remembers those that passed by what they read."""

    def __init__(self, compiler, cache):
        self.command = [compiler, '-std=c++20', '-fsyntax-only', '-Wall', '-Wextra', '-Werror',
                        '-Wno-unused-function', '-x', 'c++']
        self.cache = pathlib.Path(cache) if cache else None

    def run(self, root):
        folders = [root / 'src', root / 'include']
        paths = {p.relative_to(folder).as_posix(): p for folder in folders
                 for p in sorted(folder.rglob('*.h')) if not rules.is_inline(p.name)}
        texts = {name: path.read_text() for name, path in paths.items()}
        built = {name for name in texts for suffix in ('.cc', '_test.cc')
                 if self._first_include(folders[0] / (name[:-2] + suffix)) == name}
        passed = set(json.loads(self.cache.read_text())) if self.cache and self.cache.exists() else set()
        keys = {name: self._key(name, texts) for name in texts}
        due = [name for name in texts if name not in built and keys[name] not in passed]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            problems = dict(zip(due, pool.map(lambda name: self._compile(folders, paths[name]), due)))
        if self.cache:
            good = [key for name, key in keys.items() if not problems.get(name)]
            self.cache.write_text(json.dumps(sorted(good)))
        return [problem for problem in problems.values() if problem]

    def _first_include(self, path):
        found = cpp_scan.includes(path.read_text()) if path.exists() else []
        return found[0].path if found else None

    def _key(self, name, texts):
        """Covers the header and all headers of the tree that it reaches."""
        reached, queue = set(), [name]
        while queue:
            header = queue.pop()
            if header in texts and header not in reached:
                reached.add(header)
                queue += [include.path for include in cpp_scan.includes(texts[header])]
        digest = hashlib.sha256(' '.join(self.command).encode())
        for header in sorted(reached):
            digest.update(f'{header}\n{texts[header]}'.encode())
        return digest.hexdigest()

    def _compile(self, folders, path):
        name = path.relative_to(folders[0].parent).as_posix()
        # A header for one instruction set is compiled for it, as its .cc files are.
        target = [flag for isa, flag in ISA_FLAGS.items() if f'/{isa}/' in name for flag in flag]
        search = [flag for folder in folders for flag in ('-I', folder)]
        result = subprocess.run([*self.command, *target, *search, '-include', path, os.devnull],
                                capture_output=True, text=True)
        errors = [line for line in result.stderr.splitlines() if 'error:' in line]
        return '\n  '.join([f'{name} does not compile alone:', *errors[:5]]) if result.returncode else None


ISA_FLAGS = {
    'avx2': ['-mavx2', '-mfma', '-mf16c'],
    'avx2vnni': ['-mavx2', '-mfma', '-mf16c', '-mavxvnni'],
    'avx512': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni',
               '-mavx2', '-mfma', '-mf16c'],
    'amx': ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni',
            '-mavx2', '-mfma', '-mf16c'],
    'emulated': ['-mavx2', '-mfma', '-mf16c'],
}


class TheRules(unittest.TestCase):
    """Each rule, on a small tree that breaks it and one that does not."""

    def assert_finds(self, rule, files, expected, **tree):
        found = findings(rule, files, **tree)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def assert_clean(self, rule, files, **tree):
        self.assertEqual(findings(rule, files, **tree), [])

    def test_module_table(self):
        base = {'src/base/a.h': '', 'src/model/gguf.h': '', 'src/model/config.h': '',
                'src/engine/executor.h': '', 'src/engine/exec/cpu.h': ''}
        check = rules.check_includes
        self.assert_finds(check, {**base, 'src/kv/x.cc': '#include "model/gguf.h"\n'},
                          'x.cc:1: kv may not include model')
        self.assert_finds(check, {**base, 'src/engine/x.cc': '#include "engine/exec/cpu.h"\n'},
                          'engine may not include engine/exec')
        self.assert_finds(check, {**base, 'src/plan/x.cc': '#include "model/gguf.h"\n'}, 'plan may not')
        self.assert_finds(check, {**base, 'src/base/x.cc': '#include "a.h"\n'}, 'written as')
        self.assert_finds(check, {'src/misc/x.cc': ''}, 'not in a module')
        self.assert_clean(check, {
            **base, 'src/plan/x.cc': '#include "model/config.h"\n#include "base/a.h"\n',
            'src/engine/exec/y.cc': '#include "engine/executor.h"\n#include "model/gguf.h"\n',
            'src/kv/z.cc': '// #include "model/gguf.h"\n'})

    def test_examples_include_public_headers_only(self):
        check = rules.check_includes
        self.assert_finds(check, {'examples/x.cc': '#include "kv/block_pool.h"\n'}, 'public headers only')
        self.assert_clean(check, {'examples/x.cc': '#include <list>\n#include "kvern/kv.h"\n'})

    def test_third_party_table(self):
        check = rules.check_includes
        self.assert_finds(check, {'src/kv/x.cc': '#include <pcre2.h>\n'}, 'for text only')
        self.assert_finds(check, {'src/kv/x.cc': '#include <boost/asio.hpp>\n'}, 'for server, kv/tier')
        self.assert_finds(check, {'src/kv/x.cc': '#include <Eigen/Dense>\n'}, 'no row of THIRD_PARTY')
        self.assert_finds(check, {'src/kv/x.cc': '#include <gtest/gtest.h>\n'}, 'belongs in tests')
        self.assert_clean(check, {'src/kv/tier/x.cc': '#include <boost/asio.hpp>\n#include <vector>\n',
                                  'src/kv/x_test.cc': '#include <gtest/gtest.h>\n#include <sys/mman.h>\n'})

    def test_heavy_headers(self):
        check = rules.check_heavy_includes
        json_include = '#include <nlohmann/json.hpp>\n'
        row = [('nlohmann/json.hpp', 'src/cli/x.cc')]
        self.assert_finds(check, {'src/cli/x.h': json_include}, 'include it in a .cc')
        self.assert_finds(check, {'src/cli/x.cc': json_include}, 'is heavy: add')
        self.assert_finds(check, {'src/cli/x.cc': ''}, 'is not needed', heavy=row)
        self.assert_clean(check, {'src/cli/x.cc': json_include}, heavy=row)
        self.assert_finds(check, {'src/cli/x-inl.h': json_include}, 'is heavy: add')
        self.assert_finds(check, {'src/cli/x.h': json_include}, 'include it in a .cc')
        self.assert_clean(check, {'src/cli/x.h': '#include <nlohmann/json_fwd.hpp>\n'})

    def test_file_budget(self):
        check = rules.check_sizes
        many = {f'src/kv/small{i}.cc': lines(3) for i in range(30)}
        row = 'file_lines src/kv/x.cc {}'.format
        self.assert_finds(check, {**many, 'src/kv/x.cc': lines(601)}, 'over 600')
        self.assert_finds(check, {**many, 'src/kv/x.cc': lines(605)}, 'over 604', ratchet=row(604))
        self.assert_finds(check, {**many, 'src/kv/x.cc': lines(603)}, 'lower its row', ratchet=row(604))
        self.assert_finds(check, {**many, 'src/kv/x.cc': lines(3)}, 'remove its row', ratchet=row(604))
        self.assert_finds(check, many, 'names nothing', ratchet=row(604))
        self.assert_clean(check, {**many, 'src/kv/x.cc': lines(604)}, ratchet=row(604))
        self.assert_clean(check, {'src/kv/x.cc': '// Generated by x.py\n' + lines(2000)})
        self.assert_finds(check, {'src/kv/x.cc': lines(604)}, '1 of 1 files', ratchet=row(604))
        self.assertEqual(
            len(findings(check, {**many, 'src/kv/x.cc': lines(1001)}, ratchet=row(1001))), 2)

    def test_function_budget(self):
        check = rules.check_sizes
        row = 'function_lines src/kv/x.cc:Long {}'.format
        self.assert_finds(check, {'src/kv/x.cc': function(71)}, 'Long: function_lines 71 is over 70')
        self.assert_finds(check, {'src/kv/x.cc': function(121)}, 'over 120', ratchet=row(121))
        self.assert_finds(check, {'src/kv/x.cc': function(90)}, 'lower its row', ratchet=row(91))
        self.assert_clean(check, {'src/kv/x.cc': function(90)}, ratchet=row(90))
        self.assert_clean(check, {'src/kv/x.cc': function(70)})

    def test_parameters_and_fields(self):
        check = rules.check_sizes
        seven = ', '.join(f'int p{i}' for i in range(7))
        self.assert_finds(check, {'src/kv/x.h': f'void F({seven});\n'}, 'F has 7 parameters')
        self.assert_finds(check, {'src/kv/x.cc': f'C::C({seven}) : a_(p0), b_{{p1}} {{}}\n'}, 'C::C has 7')
        self.assert_clean(check, {'src/kv/x.h': 'void F(std::map<int, int> a, int (*f)(int, int), '
                                                'int c, int d, int e, int f);\n'})
        fields = ''.join(f'  int f{i} = 0;\n' for i in range(21))
        self.assert_finds(check, {'src/kv/x.h': f'struct RunOptions {{\n{fields}}};\n'}, '21 fields')
        self.assert_clean(check, {'src/kv/x.h': f'struct Table {{\n{fields}}};\n'})

    def test_banned_words(self):
        check = rules.check_banned_words
        for path, text in [
                ('src/kv/x.cc', 'std::getenv("HOME");'),
                ('docs/x.md', 'see /home/someone/x'),
                ('src/kv/x.cc', '// TODO: later'),
                ('src/kv/x_test.cc', 'TEST(A, DISABLED_B) {}'),
                ('src/kv/x_test.cc', 'GTEST_SKIP();'),
                ('src/kv/x.cc', 'static const bool kDone = RegisterPolicy("lru");'),
                ('src/kv/x.cc', 'static Registrar lru("lru");'),
                ('src/compute/x.cc', '_mm512_rsqrt14_ps(x)'),
                ('src/compute/x.cc', '_mm512_dpbf16_ps(a, b, c)'),
                ('src/compute/x.cc', 'std::exp(x)'),
                ('src/kv/CMakeLists.txt', 'add_compile_options(-ffast-math)'),
                ('src/kv/x.cc', '#include <source_location>'),
        ]:
            with self.subTest(text=text):
                self.assert_finds(check, {path: text}, reason_of(text))
        self.assert_clean(check, {'src/cli/x.cc': 'getenv("KVERN_MODEL")',
                                  'src/compute/x_test.cc': 'std::exp(x)',
                                  'docs/x.md': 'a/home/b, https://example.org/root/'})

    def test_everything_is_built(self):
        check = rules.check_everything_is_built
        self.assert_finds(check, {'src/kv/x.cc': '', 'src/kv/CMakeLists.txt': 'y_x.cc'}, 'no CMakeLists')
        self.assert_finds(check, {'src/kv/x.h': ''}, 'nothing includes it')
        self.assert_clean(check, {'src/kv/a/x.cc': '#include "kv/x.h"', 'src/kv/x.h': '',
                                  'src/kv/CMakeLists.txt': 'SOURCES a/x.cc'})

    def test_tested(self):
        check = rules.check_tested
        files = {'src/kv/x.h': '', 'src/kv/x.cc': ''}
        self.assert_finds(check, files, 'no test uses it')
        self.assert_clean(check, {**files, 'src/kv/other_test.cc': '#include "kv/x.h"'})
        self.assert_clean(check, {**files, 'src/kv/y.h': '', 'src/kv/y.cc': '#include "kv/x.h"',
                                  'src/kv/y_test.cc': '#include "kv/y.h"'})

    def test_header_guards(self):
        check = rules.check_header_guards
        self.assert_finds(check, {'src/kv/x.h': '#pragma once\n'}, 'its contract')
        self.assert_finds(check, {'src/kv/x.h': '// X.\n'}, '#pragma once')
        self.assert_clean(check, {'src/kv/x.h': '// X.\n#pragma once\n'})

    def test_headers_compile_alone(self):
        check = HeaderCheck(options.compiler, None)
        with TemporaryTree({'src/kv/x.h': '#pragma once\nstd::string F();\n',
                            'src/kv/x.cc': '#include <string>\n#include "kv/x.h"\n',
                            'src/kv/z.h': '#pragma once\nnot C++: its .cc would not build\n',
                            'src/kv/z.cc': '#include "kv/z.h"\n',
                            'src/kv/y.h': '#pragma once\n#include <string>\nstd::string F();\n'}) as root:
            found = check.run(root)
        self.assertEqual(len(found), 1, found)
        self.assertIn('src/kv/x.h does not compile alone', found[0])

    def test_scanner_reads_functions(self):
        functions, structs = cpp_scan.scan(
            'namespace a {\ntemplate <typename T, int N>\nT F(const T& a, std::pair<T, T> b) {\n'
            '  return {"}"}; // }\n}\nclass C {\n public:\n  C() : x_{1} {}\n  bool operator()(int) const;\n'
            ' private:\n  std::function<void(int, int)> f_;\n  int x_ = 0;\n};\n'
            "constexpr int kTable[] = {1, 2};\nauto g = [](int a, int b) { return a; };\n}\n")
        self.assertEqual([(f.name, f.num_lines, f.num_parameters) for f in functions],
                         [('F', 4, 2), ('C', 1, 0), ('operator_call', 1, 1)])
        self.assertEqual([(s.name, s.num_fields) for s in structs], [('C', 2)])


def reason_of(text):
    """The reason that BANNED gives for a bad example: it must be found by its own pattern."""
    return next(reason for pattern, reason, _ in rules.BANNED if re.search(pattern, text, re.MULTILINE))


class TemporaryTree:
    def __init__(self, files):
        self.files = files

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(self.folder.name)
        for name, text in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def __exit__(self, *_):
        self.folder.cleanup()


if __name__ == '__main__':
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--compiler', default='g++')
    parser.add_argument('--cache')
    options, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
