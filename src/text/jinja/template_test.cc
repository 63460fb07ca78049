#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/jinja/json.h"

namespace kvern::text::jinja {
namespace {

using nlohmann::ordered_json;

constexpr LocalTime kNow{2024, 7, 26, 14, 3, 9};

ordered_json ReadJson(const std::string& name) {
  std::ifstream file("tests/data/jinja/" + name);
  return ordered_json::parse(file);
}

Result<std::string> Render(const std::string& source, const ordered_json& variables = {},
                           const Limits& limits = Limits()) {
  KVERN_ASSIGN_OR_RETURN(const Template parsed, Template::Parse(source));
  KVERN_ASSIGN_OR_RETURN(const Value context, FromJson(variables));
  return parsed.Render(context.is_dict() ? context.dict() : Dict(), kNow, limits);
}

Error Refusal(const std::string& source, const Limits& limits = Limits()) {
  const Result<std::string> text = Render(source, {}, limits);
  return text.ok() ? Error{ErrorCode::kIo, "rendered: " + *text} : text.error();
}

// What jinja2 made of each template: tests/peers/make_jinja_goldens.py.
class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, EqualsJinja2) {
  const ordered_json context = ReadJson("context.json");
  for (const ordered_json& golden : ReadJson(std::string(GetParam()) + ".json")) {
    const auto source = golden["template"].get<std::string>();
    const Result<std::string> text = Render(source, context);
    if (golden.contains("text")) {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.error().message;
      EXPECT_EQ(*text, golden["text"].get<std::string>()) << source;
      continue;
    }
    ASSERT_FALSE(text.ok()) << source << "\n" << *text;
    EXPECT_EQ(text.error().message.rfind("line ", 0), 0u) << text.error().message;
    if (golden["kind"] == "raised") {
      EXPECT_EQ(text.error().code, ErrorCode::kInvalidArgument) << source;
      EXPECT_TRUE(text.error().message.ends_with(": " + golden["error"].get<std::string>()))
          << source << "\n"
          << text.error().message;
    } else {
      EXPECT_EQ(text.error().code, ErrorCode::kCorrupt) << source << text.error().message;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Golden,
                         testing::Values("expressions", "methods", "filters", "statements",
                                         "whitespace"));

TEST(Template, NamesWhatItDoesNotSupport) {
  const auto expect = [](const std::string& source, const std::string& message) {
    const Error error = Refusal(source);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << source;
    EXPECT_EQ(error.message, message);
  };
  expect("\n{% include 'x' %}", "line 2: the tag 'include' is not supported");
  expect("{% block a %}{% endblock %}", "line 1: the tag 'block' is not supported");
  expect("a\n\n{{ 1|urlize }}", "line 3: the filter 'urlize' is not supported");
  expect("{{ 99999999999999999999 }}", "line 1: integer 99999999999999999999 does not fit 64 bits");
  expect("{{ 2 ** 64 }}", "line 1: integer result does not fit 64 bits");
}

TEST(Template, ErrorsSayWhatAndWhere) {
  EXPECT_EQ(Refusal("{{ a }}\n\n{{ a.b }}").message, "line 3: 'a' is undefined");
  EXPECT_EQ(Refusal("{% if 1 %}\n{{ {}.x.y }}{% endif %}").message,
            "line 2: 'dict object' has no attribute 'x'");
  EXPECT_EQ(Refusal("\n{{ 1 + }}").message, "line 2: unexpected '}}'");
  EXPECT_EQ(Refusal("{% for x in [] %}\n").message,
            "line 1: unexpected end of template: a tag 'endfor' is missing");
}

TEST(Template, EndlessWorkEndsAtALimit) {
  Limits limits;
  limits.steps = 10'000;
  limits.allocated_bytes = 1 << 16;
  limits.output_bytes = 1 << 10;
  for (const char* source : {
           "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x * 2 %}"
           "{% endfor %}",
           "{{ 'x' * 1000000000000 }}",
           "{{ 'x'.center(1000000000000) }}",
           "{{ '%9999999d' % 1 }}",
           "{{ '{:99999999}'.format(1) }}",
           "{{ [1] * 1000000000 }}",
           "{% for a in range(2000) %}xx{% endfor %}",
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
           "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}"
           "{% endfor %}",
           "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = ns.x|select %}"
           "{% endfor %}",
           "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
       }) {
    const Error error = Refusal(source, limits);
    EXPECT_EQ(error.code, ErrorCode::kOutOfMemory) << source << "\n" << error.message;
  }
}

TEST(Template, DeepSourcesAreRefused) {
  const auto repeat = [](const std::string& text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  for (const std::string& source : {
           "{{ " + repeat("(", 10'000) + "1" + repeat(")", 10'000) + " }}",
           "{{ " + repeat("[", 10'000) + repeat("]", 10'000) + " }}",
           "{{ " + repeat("not ", 10'000) + "1 }}",
           "{{ " + repeat("-", 10'000) + "1 }}",
           "{{ 1" + repeat(" + 1", 10'000) + " }}",
           "{{ x" + repeat(".x", 10'000) + " }}",
           "{{ x" + repeat("|abs", 10'000) + " }}",
           "{{ 1" + repeat(" if 1 else 1", 10'000) + " }}",
           repeat("{% if 1 %}", 10'000),
           "{% set " + repeat("(", 10'000) + "x",
       }) {
    EXPECT_EQ(Refusal(source).code, ErrorCode::kOutOfMemory) << source.substr(0, 20);
  }
}

TEST(Template, NamespacesThatHoldEachOtherAreFreed) {
  EXPECT_TRUE(Render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                     "{% for i in [1] %}{% set a.l = loop %}{% set a.c = loop.changed(a) %}"
                     "{% endfor %}{{ a.b.a.b.a is defined }}")
                  .ok());
}

TEST(Template, BytesThatAreNotUtf8Survive) {
  ordered_json context;
  context["x"] = "a\xff\xc3";
  EXPECT_EQ(*Render("{{ x.strip() }}{{ x[1] }}{{ x|length }}", context),
            "a\xff\xc3\xff"
            "3");
}

}  // namespace
}  // namespace kvern::text::jinja
