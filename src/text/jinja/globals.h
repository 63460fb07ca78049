// The functions that every template can call: range, dict, namespace, cycler, joiner, and those
// that the transformers library adds: raise_exception, strftime_now.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

class Interpreter;

// The one mutable value: {% set ns.name = value %}.
class NamespaceObject final : public Object {
 public:
  explicit NamespaceObject(Dict variables) : variables_(std::move(variables)) {}

  std::string_view type_name() const override { return "Namespace"; }
  Result<std::optional<Value>> GetAttr(Runtime& runtime, std::string_view name) override;
  Result<std::string> Repr(Runtime& runtime) const override;

  Status Set(Runtime& runtime, const std::string& name, const Value& value);
  void Clear() { variables_ = Dict(); }

 private:
  Dict variables_;
};

std::vector<std::pair<std::string, Value>> MakeGlobals(Interpreter& in);

}  // namespace kvern::text::jinja
