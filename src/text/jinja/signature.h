// Signature: the parameters of a built-in filter, test, method or function, and binding to them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

struct Signature {
  std::initializer_list<std::string_view> names;
  size_t num_required = 0;
  bool is_variadic = false;  // further arguments go to Args::rest
};

// Arguments in the order of the signature's names; nothing where the caller gave none.
struct Args {
  std::vector<std::optional<Value>> values;
  CallArgs rest;

  bool has(size_t i) const { return values[i].has_value(); }
  // Given and not None.
  bool has_value(size_t i) const { return has(i) && !values[i]->is_none(); }
  // REQUIRES: has(i).
  const Value& operator[](size_t i) const { return *values[i]; }
  bool IsTrue(size_t i) const { return has(i) && values[i]->IsTrue(); }
};

Result<Args> Bind(std::string_view function, const Signature& signature, const CallArgs& args);

}  // namespace kvern::text::jinja
