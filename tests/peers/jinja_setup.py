"""jinja2 as the transformers library sets it up for chat templates, with a fixed clock.

Everything that compares Kvern with jinja2 goes through render(): the template's text, or why there
is none.
"""

import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2024, 7, 26, 14, 3, 9)  # render_template.cc has the same


class Raised(jinja2.TemplateError):
    """The template itself called raise_exception."""


class Generation(jinja2.ext.Extension):
    """{% generation %} marks the assistant's words: a call block that gives its text back."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        block = jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body)
        return block.set_lineno(line)

    def _text(self, caller):
        return caller()


def raise_exception(message):
    raise Raised(message)


def strftime_now(format):
    return NOW.strftime(format)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


@functools.lru_cache(maxsize=4)
def compiled(source):
    return environment().from_string(source)


def render(source, context):
    """{"text": ...}, or {"error": message, "kind": "raised" or "template"}."""
    try:
        return {"text": compiled(source).render(**context)}
    except Raised as error:
        return {"error": str(error), "kind": "raised"}
    except Exception as error:  # templates fail with whatever Python fails with
        return {"error": f"{type(error).__name__}: {error}", "kind": "template"}
