"""Small templates that pin down one behaviour each: {group: [template, ...]}, and their context."""

CONTEXT = {
    "n": 7, "neg": -3, "zero": 0, "f": 2.5, "big": 9007199254740993, "t": True, "no": None,
    "s": "Hello, World", "blank": "  \t x y \n", "empty": "", "uni": "Straße ΑΣ 你好 é 👍🏽 ǆ",
    "lines": "one\ntwo\r\nthree\n\nfive\x0bsix", "html": "<a href=\"x\">T & 'q'</a>",
    "list": [3, 1, 2], "mixed": [1, "a", None, 2.0, True, [1], {"k": "v"}], "words": ["pear", "Apple", "fig"],
    "none_list": [], "d": {"b": 1, "a": [1, 2], "C": {"x": "y"}}, "none_dict": {},
    "people": [{"name": "Ada", "age": 36, "tags": ["x"]}, {"name": "bob", "age": 25, "tags": []},
               {"name": "Cid", "age": 36}],
    "clash": {"items": 1, "keys": 2, "get": 3, "name": 4}, "q": "it's \"both\"", "floats":
    [0.1, 1e16, 1e15, 123456789.125, 1e-5, 0.0001, -0.0, 1e22, 5e-324, 1.7976931348623157e308, 100.0],
}


def outputs(text):
    """One template per line, each an expression to print."""
    return ["{{ " + line.strip() + " }}" for line in text.strip().split("\n")]


EXPRESSIONS = outputs(r"""
1 + 2 * 3 - 4 / 2
7 // 2, -7 // 2, 7 // -2, 7.5 // 2, -7.5 // 2
7 % 3, -7 % 3, 7 % -3, 7.5 % 2, -7.5 % 2
2 ** 10, 2 ** -1, 2 ** 0.5, -2 ** 2, 2 ** 3 ** 2
1 / 3, 10 / 5, 1e3, 1_000, 0x1f, 0b101, 0o17, 1_0.5, 1.5e-3
1 / 0
1 // 0
1.0 % 0
9223372036854775807, -9223372036854775807
big, big == 9007199254740992.0, 3 == 3.0, true == 1, 1 < 2 < 3, 3 > 2 > 2
1 < 2 == true, 1 in [1, 2], 4 not in [1, 2], 'el' in s, 'b' in d, 'z' not in d
not true, not 0, not '', not none_list, not none_dict, not no
1 and 2, 0 and 2, '' or 'x', none or false, 1 or 2 and 0
'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1]
'a' + 'b', [1] + [2], (1,) + (2,), 'ab' * 3, 2 * [1], 'x' * -1
'a' + 1
[1] + (2,)
1 + none
-s
+true, -true, true + true
'x' if n > 5 else 'y', 'x' if n > 50 else 'y'
'x' if false
('x' if false) is undefined
1 if 0 else 2 if 0 else 3
s[0], s[-1], s[1:4], s[:-1], s[::-1], s[::2], s[-3:], s[100:], s[5:2]
s[100]
s[100] is undefined
list[0], list[-1], list[1:], list[::-1], list[5] is undefined, (1, 2, 3)[1:]
list['0'] is undefined, list[true], list[1.0] is undefined
list[::0]
no[1:]
d[1:]
d.b, d['b'], d.C.x, d['C']['x'], d.missing is undefined, d['missing'] is undefined
d.missing.more
missing
missing.attr
missing['x']
missing + 1
1 + missing
missing == missing2, missing != 1, missing ~ 'x'
missing < 1
-missing
missing()
none.x is undefined, (1).x is undefined
clash['items'], clash.name, clash['name'], clash.keys is callable
clash.get('name'), d.get('zz'), d.get('zz', 5), d.get('b', 5)
uni[4], uni[-1], uni|length, uni[::-1], uni[7:9]
mixed, d, people[0], (1,), (), ((1, 2), 'x')
floats
q, [q], ["it's"], ['say "hi"'], ['\\ \n \t \r \x00 \x7f \u200b é 你']
true, false, none, True, False, None
{}, [], {'a': 1, 'b': {'c': [1, 2.50]}}, {1: 'x', 1.5: 'y', none: 0, true: 'z'}
{'a': 1, 'a': 2}, {(1, 2): 3}[(1, 2)], {1: 'one'}[1.0], {1: 'one'}[true]
{[1]: 2}
'\x41\u00e9\U0001F600\101\n|\q|\'' "joined" ' too'
[1, 2,], {'a': 1,}, (1, 2,)
[1, 2, 3] == [1, 2, 3], [1, 2] < [1, 3], (1, 2) == [1, 2], {'a': 1} == {'a': 1.0}
'a' < 'b', 'a' < 1
[1] < ['a']
'Z' < 'a', 'é' > 'z', '' < 'a'
1.5.x is undefined
list.0, list.1
1 is defined and 2 is defined, missing is defined
(1, 2, 3)|length, [1, [2]]|length
s is string and n is number or f is integer
n is divisibleby 7, n is odd, n is even, n is divisibleby(3), 4 is even
n is eq 7, n is ne 7, n is gt 3, n is lt(3), n is ge 7, n is le 6, n is equalto 7, n is sameas 7
n in [7], n is in [7], 'x' is in 'xyz', n is not in [1]
no is none, no is not none, t is true, t is false, 1 is true, t is boolean, n is boolean
n is integer, f is float, t is integer, t is number, n is float, s is number
s is string, s is sequence, s is iterable, s is mapping, list is mapping, d is mapping, d is sequence
n is iterable, n is sequence, missing is iterable, missing is sequence, missing is string, missing is none
d.items() is iterable, d.items() is sequence, range is callable, n is callable, d.get is callable
'abc' is lower, 'ABC' is upper, 'Abc' is lower, '' is lower, 1 is upper
'upper' is filter, 'nope' is filter, 'odd' is test, 'x'|safe is escaped, 'x' is escaped
s is odd
range(5)|list, range(1, 5)|list, range(5, 0, -2)|list, range(3), range(1, 9, 2), range(0)|list
range(0, 1, 0)
range(1000000)
range('x')
range(10)[3], range(10)|length, 3 in range(5), range(3) == range(3)
dict(a=1, b=2), dict([('x', 1)]), dict({'k': 1}, z=2)
'%s and %d' % ('x', 5), '%05.1f|%-5s|%+d|%x|%X|%o|%e|%g|%%' % (3.14159, 'ab', 5, 255, 255, 8, 12345.678, 0.0001)
'%s' % 5, '%s' % none, '%r' % 'x', '%(a)s-%(b)03d' % {'a': 1, 'b': 2}, '%c%c' % (65, 'B'), '%5s|%.2s' % ('ab', 'abcdef')
'%d' % 'x'
'%s %s' % 'x'
'x' % 5
'%d' % 3.99, '%i' % true, '%#x' % 255, '% d' % 5, '%*d' % (5, 3)
'{} {}'.format(1, 'x'), '{1} {0}'.format('a', 'b'), '{a} {b[0]} {c.x}'.format(a=1, b=[2], c=d.C)
'{:5}|{:<5}|{:>5}|{:^5}|{:*^7}'.format('ab', 'ab', 'ab', 'ab', 'ab')
'{:5}|{:<5}|{:05}|{:+}|{:x}|{:#x}|{:b}|{:o}|{:c}|{:,}|{:_}'.format(42, 42, 42, 42, 255, 255, 5, 8, 65, 1234567, 1234567)
'{:.2f}|{:8.3f}|{:e}|{:g}|{:%}|{:.1%}|{:,.2f}|{:.3}|{}'.format(3.14159, 3.14159, 12345.678, 0.00001, 0.5, 0.123, 1234567.891, 2.0, 1e20)
'{!r} {!s} {{}} {:{}}'.format('x', 'y', 'z', 4)
'{}'.format()
'{x}'.format(y=1)
'{:d}'.format('x')
'{:5}'.format(none)
'{:.3}|{:.10}|{:.2}'.format('abcdef', 'ab', 123.456)
[1, 2, 3][1:][0], 'abc'[1:]|upper, -5|abs, (-5)|abs
1|string + '2', n|string|length
a.b.c is defined
loop is defined
'a' 'b' ~ 'c'
""")

METHODS = outputs(r"""
blank.strip() ~ '|', blank.lstrip() ~ '|', blank.rstrip() ~ '|', 'xxaxx'.strip('x'), 'abcba'.lstrip('ab'), 'abc'.rstrip('bc')
'\u00a0x\u2003'.strip(), 'éxé'.strip('é'), 'abc'.strip(none), 'abc'.strip('')
'a,b,,c'.split(','), 'a,b,,c'.split(',', 1), ' a  b '.split(), ' a  b c '.split(none, 1), ''.split(), ''.split(','), 'aXXbXXc'.split('XX')
'a,b,,c'.rsplit(',', 1), ' a  b c '.rsplit(none, 1), 'abc'.rsplit('z'), 'a b'.split(sep=' ', maxsplit=5)
'abc'.split('')
lines.splitlines(), lines.splitlines(true), ''.splitlines(), 'a\n'.splitlines()
'abc'.startswith('a'), 'abc'.startswith(('x', 'a')), 'abc'.endswith('bc'), 'abc'.endswith(('z', 'y')), 'abc'.startswith('b', 1), 'abc'.endswith('b', 0, 2), ''.startswith('')
'abc'.startswith(1)
'abc'.startswith(missing)
'aXbXc'.replace('X', '-'), 'aXbXc'.replace('X', '-', 1), 'abc'.replace('', '-'), 'abc'.replace('', '-', 2), 'aaa'.replace('aa', 'b')
'abc'.replace('a', none)
uni.upper(), uni.lower(), uni.title(), uni.capitalize(), uni.swapcase(), 'ΑΣ ΑΣΑ Σ'.lower()
s.upper(), s.lower(), 'hello world it\'s'.title(), 'hELLO wORLD'.capitalize(), 'ǆx'.title(), 'ﬁx'.upper(), 'ŉ'.upper()
','.join(['a', 'b']), ''.join('abc'), '-'.join(d), ', '.join(words)
','.join([1, 2])
','.join(missing)
'abcabc'.find('c'), 'abc'.find('z'), 'abcabc'.rfind('c'), 'éàé'.find('é', 1), 'abc'.index('c'), 'abcabc'.count('b'), 'abc'.count(''), 'aaa'.count('aa')
'abc'.index('z')
'abc'.removeprefix('a'), 'abc'.removesuffix('c'), 'abc'.removeprefix('z'), 'aXbXc'.partition('X'), 'aXbXc'.rpartition('X'), 'abc'.partition('X'), 'abc'.rpartition('X')
'12'.isdigit(), '1a'.isdigit(), ''.isdigit(), '²'.isdigit(), '²'.isdecimal(), '½'.isnumeric(), 'aé你'.isalpha(), 'a1'.isalnum(), ' \t'.isspace()
'abc'.islower(), 'ABC'.isupper(), 'Abc Def'.istitle(), 'abc'.isascii(), 'é'.isascii(), 'a_1'.isidentifier(), '1a'.isidentifier(), 'a\n'.isprintable()
'ab'.center(5) ~ '|', 'ab'.center(5, '*'), 'abc'.center(6, '*'), 'ab'.ljust(4, '.'), 'ab'.rjust(4, '.'), '-5'.zfill(4), 'a\tb'.expandtabs(4), 'é'.center(4, 'ö')
d.items(), d.keys(), d.values(), d.items()|list, d.keys()|list, d.values()|list
d.copy(), list.copy(), list.index(2), list.count(1), (1, 2, 1).count(1), (1, 2).index(2)
list.index(99)
list.append(1)
d.update({})
d.pop('b')
list.sort()
list.append is defined
s.nope()
s.nope is defined
d.items()[0] is undefined
(1).bit is defined
s.__class__
s.__class__.__mro__
''.join([])
'a'.join('bcd')
""")

FILTERS = outputs(r"""
-5|abs, 5.5|abs, true|abs
'x'|abs
'hello WORLD'|capitalize, 'hello WORLD'|title, 'a-b (c [d {e <f it\'s'|title, s|upper, s|lower
missing|upper, none|upper, 5|upper, [1]|upper
'ab'|center(6) ~ '|', blank|trim ~ '|', 'xax'|trim('x'), 5|trim
missing|default('x'), none|default('x'), none|default('x', true), ''|default('x', boolean=true), missing|d, d.zz|d(1)
missing|default(missing2)|default('deep')
d|dictsort, d|dictsort(true), d|dictsort(by='value', reverse=true)|list|length, {'b': 2, 'a': 1}|dictsort(false, 'value')
{'b': 'z', 'a': 'Y'}|dictsort(by='value'), {'b': 1, 'A': 2}|dictsort(reverse=true)
missing|dictsort
[1]|dictsort
list|first, list|last, none_list|first is undefined, s|first, s|last, d|first, d|last, none_list|last is undefined
5|first
list|select|last
'3.7'|float, 'x'|float, 'x'|float(1.5), 5|float, true|float, ' 1e3 '|float, 'inf'|float, 'nan'|float, none|float
'42'|int, '4.9'|int, 'x'|int, 'x'|int(7), 3.99|int, -3.99|int, '0x1f'|int(0, 16), '1f'|int(base=16), '101'|int(base=2), none|int, [1]|int, ' 12 '|int, '1_000'|int, '١٢'|int, true|int
missing|int
'%s-%s'|format('a', 1), '%(x)s'|format(x=2)
people|groupby('age')|map('first')|list, people|groupby('age')|length
{{'a': 1}: 2}
'a\nb\n\nc'|indent, 'a\nb'|indent(2, true), 'a\n\nb'|indent(2, blank=true), 'a\nb'|indent('>> '), ''|indent, 'a\n'|indent, 'a\r\nb'|indent(1)
5|indent
[1, 2]|join, [1, 2]|join(', '), people|join(', ', attribute='name'), 'abc'|join('-'), d|join, mixed|join('|'), missing|join
5|join
list|length, s|length, d|length, none_list|count, missing|length
5|length
list|select|length
list|list, s|list, d|list, range(3)|list, missing|list
none|list
d|items|list, missing|items|list
words|map('upper')|list, people|map(attribute='name')|join(','), people|map(attribute='tags.0', default='-')|list, people|map(attribute='zz')|list, [[1, 2], [3]]|map('join', '+')|list, none|map('upper')|list
words|map('nope')|list
words|map|list
list|max, list|min, words|max, words|min, words|max(case_sensitive=true), people|max(attribute='age'), none_list|max is undefined
['a', 1]|min
list|sum, floats[:2]|sum, people|sum(attribute='age'), list|sum(start=10), none_list|sum, [[1], [2]]|sum(start=[])
['a']|sum
list|reject('odd')|list, list|select('gt', 1)|list, mixed|select|list, mixed|reject|list, mixed|select('string')|list, list|select('in', [1, 2])|list
people|selectattr('age', 'eq', 36)|map(attribute='name')|list, people|selectattr('tags')|list|length, people|rejectattr('tags')|list|length, people|selectattr('zz', 'defined')|list, people|rejectattr('name', 'eq', 'bob')|map(attribute='name')|list
people|selectattr|list
list|select('nope')|list
'aXbX'|replace('X', '-'), 'aXbX'|replace('X', '-', 1), 5|replace(5, 6), none|replace('N', 'n')
list|reverse|list, s|reverse, (1, 2)|reverse|list, d|reverse|list, list|select|reverse
2.5|round, 3.5|round, 2.675|round(2), 1234.5678|round(-2), 5|round, 15|round(-1), 25|round(-1), 2.1|round(method='ceil'), 2.9|round(0, 'floor'), 2.55|round(1, 'ceil'), -2.5|round, 1e300|round(2), true|round
2.5|round(1, 'nope')
html|escape, html|e, html|safe, html|safe|e, html|e|e, html|forceescape, 5|e, html|e|upper
('<b>'|safe) + '<i>', '<i>' + ('<b>'|safe), ('<b>'|safe) ~ '<i>', ('%s'|safe) % '<', ('<b>'|safe) * 2, ('{}'|safe).format('<')
('<b>'|safe).replace('b', '<'), ('<b>'|safe).upper() + '&', ['<', '>'|safe]|join('&'), ('&'|safe).join(['<', 'x'|safe]), ('<b>'|safe)[0] + '<', ('a b'|safe).split()[0] + '<'
[('<'|safe)], ('<'|safe)|string + '<', ('<'|safe)|trim + '<', ('<'|safe)|length, ('<'|safe) == '<', ('<'|safe)|tojson
list|sort, list|sort(reverse=true), words|sort, words|sort(case_sensitive=true), people|sort(attribute='age')|map(attribute='name')|list, people|sort(attribute='age,name', reverse=true)|map(attribute='name')|list, s|sort, d|sort, [[2, 'a'], [1, 'b']]|sort
mixed|sort
5|string, none|string, [1, 'a']|string, s|string, 1.0|string
[1, 2, 3, 4, 5]|batch(2)|list, [1, 2, 3]|batch(2, 'x')|list, [1, 2, 3, 4, 5]|slice(3)|list, [1, 2, 3, 4]|slice(3, 'x')|list, none_list|batch(2)|list
'foo bar baz qux'|truncate(9), 'foo bar baz qux'|truncate(9, true), 'foo bar baz qux'|truncate(11), 'foo bar baz qux'|truncate(11, false, '..', 0), 'short'|truncate
'foo'|truncate(1)
['a', 'A', 'b', 'a']|unique|list, ['a', 'A']|unique(true)|list, [1, 1.0, true, 2]|unique|list, people|unique(attribute='age')|map(attribute='name')|list
[[1], [1]]|unique|list
'foo bar, baz_1 é'|wordcount, ''|wordcount
people[0]|attr('name') is undefined, s|attr('upper') is callable
d|tojson, mixed|tojson, uni|tojson, html|tojson, floats|tojson, (1, 2)|tojson, '\x00\x1f\x7f\u2028"\\/\b\f\n\r\t'|tojson, none|tojson, true|tojson
d|tojson(indent=2), d|tojson(indent=0), []|tojson(indent=2), {}|tojson(indent=2), [[], {}, [1]]|tojson(indent='\t'), uni|tojson(ensure_ascii=true)
d|tojson(separators=(',', ':')), d|tojson(sort_keys=true), d|tojson(indent=2, separators=(', ', ' = ')), {1: 2, none: 3, true: 4, 1.5: 5}|tojson, d|tojson(false, 1)
missing|tojson
range|tojson
{(1, 2): 3}|tojson
d.items()|tojson
[missing]|tojson
s|nope
1 is nope
s|upper|lower|title, (s|upper).lower(), s|replace('l', 'L')|list|join('-')
'x'|default('y')|upper if n > 1 else 'z'
""") + [
    "{% if false %}{{ s|nope }}{% endif %}ok", "{% if true %}{{ s|nope }}{% endif %}", "{{ (s|nope) if false else 1 }}",
    "{% for i in [] %}{{ s|nope }}{% endfor %}ok", "{% if false %}{% for i in [] %}{{ s|nope }}{% endfor %}{% endif %}ok",
    "{% if 1 is nope %}{% endif %}ok", "{% set m = list|map('string') %}{{ m|list }}{{ m|list }}",
    "{% set g = people|groupby('age') %}{% for a, l in g %}{{ a }}:{{ l|length }} {% endfor %}{{ g[0].grouper }}{{ g[0].list|length }}",
    "{% filter upper %}a{{ s }}b{% endfilter %}", "{% filter replace('a', 'b')|trim %} a a {% endfilter %}|",
]

STATEMENTS = [
    "{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {{ x }};{% endfor %}",
    "{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in list if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for x in list if x > 5 %}{{ x }}{% else %}none{% endfor %}", "{% for x in [] %}{% else %}empty{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% for c in 'aé' %}{{ c }}.{% endfor %}", "{% for x in missing %}{{ x }}{% endfor %}ok", "{% for x in 5 %}{% endfor %}", "{% for x in none %}{% endfor %}",
    "{% for x in list %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in list %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in list %}{% break %}{% else %}else{% endfor %}", "{% for x in list %}{% continue %}{% else %}else{% endfor %}", "{% for x in list %}{% if loop.last %}{% break %}{% endif %}{% else %}else{% endfor %}",
    "{% break %}", "{% for x in list %}{% for y in list %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}",
    "{% for x in list %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in [{'v': 1, 'c': [{'v': 2, 'c': []}]}] recursive %}[{{ loop.depth }}{{ x.v }}{{ loop(x.c) }}]{% endfor %}",
    "{% for x in list %}{{ loop(x) }}{% endfor %}", "{% for x in list %}{% set y = x %}{% endfor %}{{ y is defined }}",
    "{% set y = 0 %}{% for x in list %}{% set y = y + x %}{{ y }}{% endfor %}{{ y }}", "{% set ns = namespace(y=0) %}{% for x in list %}{% set ns.y = ns.y + x %}{% endfor %}{{ ns.y }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns.c is defined }}{{ ns }}", "{% set d.x = 1 %}", "{% set nope.x = 1 %}", "{% set ns = namespace() %}{{ ns.x.y }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}", "{% set (a, b) = 'xy' %}{{ a ~ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set ns = namespace(x=1) %}{% set ns.x, b = 3, 4 %}{{ ns.x }}{{ b }}",
    "{% set x %}a{{ n }}b{% endset %}[{{ x }}]", "{% set x|upper %}ab{% endset %}{{ x }}", "{% set x | replace('a', 'b') | trim %} aa {% endset %}[{{ x }}]",
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if no %}a{% elif t %}b{% endif %}", "{% if missing %}a{% else %}b{% endif %}", "{% if not d.zz and s %}y{% endif %}", "{% if 1 %}{% set z = 1 %}{% endif %}{{ z }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c='z') }}|{{ m() }}|{{ m(b=5, a=1) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=1) }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(4) }}",
    "{% macro m() %}{{ y }}{% endmacro %}{% set y = 1 %}{{ m() }}", "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q is defined }}", "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ n }}{% endcall %}",
    "{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a }}{{ b }}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(a, b) %}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_kwargs }}{{ m.caller }}", "{% macro m() %} x {% endmacro %}[{{ m()|trim }}]{{ m() is string }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'a': 2}) }}",
    "{% for i in list %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% with a=1, b=n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a is defined }}", "{% with a=1, b=a %}{{ b }}{% endwith %}",
    "{% generation %}{{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}", "{% for x in list %}{% generation %}{{ x }}{{ loop.index }}{% endgeneration %}{% endfor %}", "{% for x in list %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% print 1, 'a' %}", "{{ raise_exception('No: ' ~ n) }}", "{% if true %}{{ raise_exception('a\nb') }}{% endif %}", "{% for m in list if raise_exception('lazy ' ~ m) %}{% endfor %}", "{{ raise_exception(5) }}", "{{ raise_exception() }}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %a %A %j %I %p %y %-d %e %% %f[%Z%z]') }}", "{{ strftime_now('') }}", "{{ strftime_now('é') }}", "{{ strftime_now(5) }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}", "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b{{ j() }}c",
    "{% set r = namespace(l=[]) %}{% for x in list %}{% set r.l = r.l + [x * 2] %}{% endfor %}{{ r.l }}", "{% for x in list|sort %}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{{ n }}{% set n = 1 %}{{ n }}", "{% for n in list %}{{ n }}{% endfor %}{{ n }}", "{% for loop_ in list %}{{ loop.index }}{% for y in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in list %}{% set outer = loop %}{% for y in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}", "{% set ns = namespace(t='') %}{% for x in list %}{% set ns.t %}{{ ns.t }}{{ x }}{% endset %}{% endfor %}{{ ns.t }}",
    "{% for x in list %}{% filter upper %}{% if x == 1 %}{% break %}{% endif %}a{% endfilter %}{% endfor %}", "{% for p in people %}{{ p.name }}:{{ p.tags|default([])|length }} {% endfor %}",
    "{% nope %}", "{% endif %}", "{% if %}{% endif %}", "{% if 1 %}", "{% for x in list %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ 'a }}", "{{ a b }}", "{{ }}", "{% %}", "{{ 1 is odd is even }}", "{# open", "{% raw %}x", "{{ $ }}", "{% set 1 = 2 %}", "{% set none = 2 %}", "{% macro m(a=1, b) %}{% endmacro %}", "{{ f(a=1, 2) }}", "{% set a.b.c = 1 %}", "{% else %}",
]

WHITESPACE = [
    "a\n", "a\n\n", "a\r\nb\r\n", "a\rb", "\n", "", "a  {{ n }}  b", "a  {{- n -}}  b", "a \n {{- n }} \n b", "x\n  {% if t %}\n  y\n  {% endif %}\nz\n", "x\n  {%- if t %}\n  y\n  {%- endif %}\nz",
    "x\n  {% if t -%}\n  y\n  {% endif -%}\nz", "x\n  {%+ if t %}\n  y\n  {%+ endif %}\nz", "x {% if t %} y {% endif %} z", "  {% if t %}\nx{% endif %}", "  {# c #}\nx", "x\n  {# c #}  \ny", "x  {#- c -#}  y", "x {#+ c +#}\ny",
    "{% if t +%}\nx\n{% endif +%}\ny", "{% raw %}{{ x }}{% y %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b", "{% raw %}\n x\n  {% endraw %}\ny", "{% raw -%}\n x {%+ endraw +%}\ny", "{#{{ x }}#}a", "{# a #}{# b #}\nc",
    "\t {% set x = 1 %}\t\n\t{{ x }}", "{% for x in list %}\n  {{ x }}\n{% endfor %}\n", "{%- for x in list -%}\n  {{ x }}\n{%- endfor -%}\n", "{% for x in list %}{{ x }}\n{% endfor %}", "a{% if t %}\n\nb{% endif %}", "{{ 'a\nb' }}", "{{\n n\n}}", "{%\n if t\n %}x{%\nendif\n%}",
    "a\u00a0{{- n }}", "a\n\u2003{% if t %}b{% endif %}", "{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a'] }}", "{{ {'a': {'b': 1}}}}", "{ { } } {% if t %}{ {%- endif %}", "{{-n-}}", "{{- n -}} {{- n -}}", "{{+ n }}", "{% if t %}a{%- else -%}b{% endif %} c", "x\n {% if t %} \n y {% endif %} \n z", "{#-#}a", "a {#-#} b",
]

GROUPS = {"expressions": EXPRESSIONS, "methods": METHODS, "filters": FILTERS, "statements": STATEMENTS,
          "whitespace": WHITESPACE}
