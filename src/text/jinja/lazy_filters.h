// map, select, reject and their attribute forms: filters that work as their result is read.
#pragma once

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/signature.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

Result<Value> MapFilter(Runtime& runtime, const Value& input, const Args& args);
Result<Value> SelectFilter(Runtime& runtime, const Value& input, const Args& args);
Result<Value> RejectFilter(Runtime& runtime, const Value& input, const Args& args);
Result<Value> SelectAttrFilter(Runtime& runtime, const Value& input, const Args& args);
Result<Value> RejectAttrFilter(Runtime& runtime, const Value& input, const Args& args);

}  // namespace kvern::text::jinja
