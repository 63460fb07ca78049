// Methods of strings, dicts and lists: `x.strip()`. One row of a table each (string_methods.cc,
// collection_methods.cc).
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/signature.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

struct Method {
  std::string_view name;
  Signature signature;
  Result<Value> (*run)(Runtime& runtime, const Value& self, const Args& args);
};

std::span<const Method> StringMethods();
std::span<const Method> DictMethods();
std::span<const Method> ListMethods();  // of lists, tuples and ranges

// The method of `self`'s type, ready to be called; nothing when there is none.
std::optional<Value> BindMethod(const Value& self, std::string_view name);

// Python has it, but it would change the value: the sandbox refuses it.
bool IsMutatingMethod(const Value& self, std::string_view name);

// str.format; `args.rest` has the arguments.
Result<Value> StrFormat(Runtime& runtime, const Value& self, const Args& args);

// str.join of any iterable of strings.
Result<Value> StrJoin(Runtime& runtime, const Value& self, const Args& args);

}  // namespace kvern::text::jinja
