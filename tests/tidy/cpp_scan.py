"""Reads just enough C++ for the tidy rules: includes, functions and the fields of structs.

It relies on clang-format's output: the brace that opens a body has a space before it.
"""

import dataclasses
import re

_TOKENS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(["<])([^">]+)[">]', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Include:
    line: int
    quoted: bool
    path: str


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    line: int
    num_lines: int  # 1 for a declaration
    num_parameters: int


@dataclasses.dataclass(frozen=True)
class Struct:
    name: str
    line: int
    num_fields: int


def _blank(match):
    text = match.group(0)
    blank = re.sub(r'[^\n]', ' ', text)
    return '""' + blank[2:] if text[0] in '"R' and len(text) >= 2 else blank


def code_only(text):
    """The text with comments and literals blanked, at the same offsets."""
    return _TOKENS.sub(_blank, text)


def includes(text):
    text = re.sub(r'//[^\n]*|/\*.*?\*/', lambda m: re.sub(r'[^\n]', ' ', m.group(0)), text,
                  flags=re.DOTALL)
    return [Include(text.count('\n', 0, m.start(2)) + 1, m.group(1) == '"', m.group(2))
            for m in _INCLUDE.finditer(text)]


def _skip_group(text, start):
    """The offset just behind the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] in '([{':
            depth += 1
        elif text[i] in ')]}':
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def _skip_angles(text, start):
    depth = 0
    for i in range(start, len(text)):
        if text[i] == '<':
            depth += 1
        elif text[i] == '>':
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def _strip_decorations(head):
    head = head.strip()
    while match := re.match(r'template\s*(?=<)|requires\s*(?=\()', head):
        skip = _skip_angles if match.group(0).startswith('template') else _skip_group
        head = head[skip(head, match.end()):].lstrip()
    head = re.sub(r'\[\[.*?\]\]', '', head)
    while match := re.search(r'\b(?:__attribute__|alignas|decltype|noexcept|explicit)\s*(?=\()', head):
        head = head[:match.start()] + ' ' + head[_skip_group(head, match.end()):]
    return re.sub(r'operator\s*\(\s*\)', 'operator_call', head)


def _signature(head):
    """(name, number of parameters) if `head` declares a function, else None."""
    head = _strip_decorations(head)
    match = re.search(r'([\w~:]+|operator\s*[^\s\w(]+)\s*\(', head)
    if not match or re.search(r'(?<![=!<>])=(?!=)', head[:match.start()]):
        return None
    before = head[:match.start()]
    if before.count('<') > before.count('>') or re.match(r'\s*\*', head[match.end():]):
        return None  # a field of function type or a pointer to a function
    if match.group(1) in ('if', 'for', 'while', 'switch', 'return', 'static_assert', 'defined'):
        return None
    end = _skip_group(head, match.end() - 1)
    return match.group(1), _count_list(head[match.end():end - 1])


def _count_list(text):
    if text.strip() in ('', 'void'):
        return 0
    count = 1
    angles = 0
    i = 0
    while i < len(text):
        if text[i] in '([{':
            i = _skip_group(text, i)
            continue
        if text[i] == '<':
            angles += 1
        elif text[i] == '>' and (i == 0 or text[i - 1] != '-'):
            angles -= 1
        elif text[i] == ',' and angles <= 0:
            count += 1
        i += 1
    return count


def _kind(head, brace_follows_space):
    """What the brace after `head` opens."""
    stripped = _strip_decorations(head)
    if re.match(r'(inline\s+)?namespace\b', stripped) or stripped.startswith('extern ""'):
        return 'namespace'
    if re.match(r'(typedef\s+)?(class|struct|union|enum)\b', stripped) and '(' not in stripped:
        return 'type'
    if brace_follows_space and _signature(head) and not stripped.endswith(('=', ',')):
        return 'function'
    return 'other'


def scan(text):
    """All functions and structs of a file: (list of Function, list of Struct)."""
    code = code_only(text)
    code = re.sub(r'^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', lambda m: re.sub(r'[^\n]', ' ', m.group(0)),
                  code, flags=re.MULTILINE)
    functions, structs = [], []

    def line_of(offset):
        return text.count('\n', 0, offset) + 1

    def scan_scope(start, owner):
        """Reads declarations from `start`; returns (offset behind the scope's end, fields)."""
        head_start = start
        fields = 0
        i = start
        while i < len(code):
            c = code[i]
            if c in '([':
                i = _skip_group(code, i)
                continue
            if c == '}':
                return i + 1, fields
            if c == ':' and re.fullmatch(r'\s*(public|private|protected)\s*', code[head_start:i]):
                head_start = i + 1
            elif c == ';':
                head = code[head_start:i]
                signature = _signature(head)
                line = line_of(head_start + len(head) - len(head.lstrip()))
                if signature and not re.match(r'\s*(using|friend|typedef|return)\b', head):
                    functions.append(Function(signature[0], line, 1, signature[1]))
                elif owner == 'type' and head.strip() and not re.match(
                        r'\s*(using|friend|typedef|static|class|struct|enum)\b', head):
                    fields += 1
                head_start = i + 1
            elif c == '{':
                i, head_start = open_brace(head_start, i)
                continue
            i += 1
        return i, fields

    def open_brace(head_start, brace):
        """Handles the brace; returns (where to go on, where the current head starts)."""
        head = code[head_start:brace]
        kind = _kind(head, brace > 0 and code[brace - 1] in ' \n')
        line = line_of(head_start + len(head) - len(head.lstrip()))
        if kind in ('namespace', 'type'):
            end, fields = scan_scope(brace + 1, kind)
            if kind == 'type' and not re.match(r'\s*enum\b', _strip_decorations(head)):
                name = re.search(r'(?:class|struct|union)\s+(\w+)', _strip_decorations(head))
                structs.append(Struct(name.group(1) if name else '(anonymous)', line, fields))
            return end, end
        end = _skip_group(code, brace)
        if kind == 'function':
            name, num_parameters = _signature(head)
            functions.append(
                Function(name, line, line_of(end - 1) - line + 1, num_parameters))
            return end, end
        return end, head_start

    i = 0
    while i < len(code):
        i, _ = scan_scope(i, 'namespace')
    return functions, structs
