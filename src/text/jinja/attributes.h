// Reading parts of values: x.name, x[key], x[start:stop:step], with the rules of jinja2's sandbox.
//
// x.name looks for an attribute (a method) first and an element second; x[key] the other way round.
// What is not there is undefined, not an error. Methods that would change a list or dict, and names
// that begin with an underscore, are undefined values whose use is refused.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

Result<Value> GetAttr(Runtime& runtime, const Value& object, std::string_view name);
Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);

// A method or attribute of the value's type; nothing when it has none of that name.
Result<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& object,
                                           std::string_view name);

// Bounds are none where Python's slice omits them.
struct SliceBounds {
  Value start;
  Value stop;
  Value step;
};
Result<Value> GetSlice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

}  // namespace kvern::text::jinja
