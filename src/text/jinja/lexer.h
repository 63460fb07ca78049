// Lexer: the tokens of a template, with jinja2's white-space rules already applied.
//
// The environment is that of the transformers library: trim_blocks (a newline after a block tag
// goes), lstrip_blocks (blanks before a block tag on its line go), one trailing newline of the file
// goes, and \r\n counts as \n.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvern::text::jinja {

struct Token {
  enum class Kind {
    kData,           // text between tags
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,  // text holds the value, escapes resolved
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind;
  std::string text;
  int line;

  bool IsOperator(std::string_view symbol) const {
    return kind == Kind::kOperator && text == symbol;
  }
  bool IsName(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// Ends with a kEnd token. Errors are prefixed with their line.
Result<std::vector<Token>> Tokenize(std::string_view source);

// An error with its place: "line 3: message".
Error AtLine(int line, const Error& error);

}  // namespace kvern::text::jinja
