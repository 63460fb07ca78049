// JSON in and out: context values from nlohmann json, and Python's json.dumps.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

// Keeps the order of object members. Numbers beyond 64 bits become floats. An error when nested
// deeper than `max_depth`.
Result<Value> FromJson(const nlohmann::ordered_json& json, int max_depth = 100);

struct DumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // nothing: one line
  std::string item_separator = ", ";  // Python's defaults depend on indent: the caller sets them
  std::string key_separator = ": ";
};
// An error for what JSON cannot hold: undefined values, objects, iterators.
Result<std::string> DumpJson(Runtime& runtime, const Value& value, const DumpOptions& options);

}  // namespace kvern::text::jinja
