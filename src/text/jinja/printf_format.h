// Python's `text % arguments`.
#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

// `arguments` is a tuple, a dict (for %(name)s) or a single value. REQUIRES: format.is_string().
Result<Value> PrintfFormat(Runtime& runtime, const Value& format, const Value& arguments);

}  // namespace kvern::text::jinja
