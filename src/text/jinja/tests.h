// Tests: `value is name(arguments)`. One row of a table each, in tests.cc.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/signature.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

struct Test {
  std::string_view name;
  Signature signature;
  Result<bool> (*run)(Runtime& runtime, const Value& subject, const Args& args);
};

// Null when there is none.
const Test* FindTest(std::string_view name);
Error NoSuchTest(std::string_view name);

Result<bool> CallTest(Runtime& runtime, std::string_view name, const Value& subject,
                      const CallArgs& args);

}  // namespace kvern::text::jinja
