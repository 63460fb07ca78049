// Python's operators on values: arithmetic, comparison, membership.
#pragma once

#include <compare>
#include <string_view>

#include "base/result.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

enum class BinaryOp { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

Result<Value> Apply(Runtime& runtime, BinaryOp op, const Value& left, const Value& right);
Result<Value> Negate(const Value& value);
Result<Value> Plus(const Value& value);

// ==, which never fails. Recursion is bounded by the values' depth.
bool Equals(const Value& left, const Value& right);

// Any comparison.
Result<bool> Compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right);

// left < right, for sorting.
Result<bool> Less(Runtime& runtime, const Value& left, const Value& right);

// HTML escaping, as Markup does to what is added to it.
std::string EscapeHtml(std::string_view text);
// soft: a safe string stays as it is.
Result<std::string> EscapeValue(Runtime& runtime, const Value& value);

}  // namespace kvern::text::jinja
