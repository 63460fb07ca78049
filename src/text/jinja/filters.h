// Filters: `value | name(arguments)`. One row of a table each.
//
// To add one, write its function and its row in filters_text.cc, filters_number.cc or
// filters_sequence.cc.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/signature.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

struct Filter {
  std::string_view name;
  Signature signature;
  Result<Value> (*run)(Runtime& runtime, const Value& input, const Args& args);
};

std::span<const Filter> TextFilters();
std::span<const Filter> NumberFilters();
std::span<const Filter> SequenceFilters();

// Null when there is none.
const Filter* FindFilter(std::string_view name);
// jinja2 has it, Kvern does not.
bool IsUnsupportedFilter(std::string_view name);
// What the use of an unknown filter says.
Error NoSuchFilter(std::string_view name);

Result<Value> CallFilter(Runtime& runtime, std::string_view name, const Value& input,
                         const CallArgs& args);

}  // namespace kvern::text::jinja
