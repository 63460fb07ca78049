#include <cmath>
#include <cstdlib>
#include <string>

#include "text/jinja/convert.h"
#include "text/jinja/filters.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/operators.h"

namespace kvern::text::jinja {
namespace {

constexpr int64_t kMaxDecimals = 400;  // beyond a double's digits on either side

Error TooLarge(const Value& value) {
  return Errorf(ErrorCode::kUnsupported, "integer {} does not fit 64 bits",
                value.is_string() ? value.str() : FloatRepr(value.as_float()));
}

Result<Value> IntOfString(const Value& input, int64_t base, const Value& fallback) {
  if (const auto number = ParseInt(input.str(), static_cast<int>(base))) {
    return Value::Int(*number);
  }
  const std::optional<double> number = ParseFloat(input.str());
  if (!number || !std::isfinite(*number)) return fallback;
  if (const auto truncated = Truncate(*number)) return Value::Int(*truncated);
  return TooLarge(input);
}

Result<Value> ToInt(Runtime&, const Value& input, const Args& args) {
  const Value fallback = args.has(0) ? args[0] : Value::Int(0);
  int64_t base = 10;
  if (args.has(1)) {
    KVERN_ASSIGN_OR_RETURN(base, ToIndex(args[1], "base"));
  }
  if (base != 0 && (base < 2 || base > 36)) base = 10;
  if (input.is_undefined()) return UndefinedError(input);
  if (input.is_string()) return IntOfString(input, base, fallback);
  if (input.is_integral()) return Value::Int(input.as_int());
  if (!input.is_float() || std::isnan(input.as_float())) return fallback;
  if (std::isinf(input.as_float()))
    return TemplateError("cannot convert float infinity to integer");
  if (const auto truncated = Truncate(input.as_float())) return Value::Int(*truncated);
  return TooLarge(input);
}

Result<Value> ToFloat(Runtime&, const Value& input, const Args& args) {
  if (input.is_undefined()) return UndefinedError(input);
  if (input.is_number()) return Value::Float(input.as_float());
  if (input.is_string()) {
    if (const auto number = ParseFloat(input.str())) return Value::Float(*number);
  }
  return args.has(0) ? args[0] : Value::Float(0);
}

Result<Value> Abs(Runtime&, const Value& input, const Args&) {
  if (input.is_float()) return Value::Float(std::fabs(input.as_float()));
  if (input.is_integral()) return input.as_int() < 0 ? Negate(input) : Plus(input);
  return TypeError("bad operand type for abs(): '{}'", input.type_name());
}

double RoundFloat(double value, int64_t decimals) {
  if (!std::isfinite(value) || decimals > kMaxDecimals) return value;
  if (decimals < -kMaxDecimals) return std::copysign(0.0, value);
  if (decimals < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-decimals));
    return std::nearbyint(value / unit) * unit;
  }
  const std::string digits = FormatMagnitude(value, 'f', static_cast<int>(decimals), false);
  return std::copysign(std::strtod(digits.c_str(), nullptr), value);
}

// To a multiple of 10^places, ties to the even multiple.
int64_t RoundInt(int64_t value, int64_t places) {
  if (places > 18) return 0;
  int64_t unit = 1;
  for (int64_t i = 0; i < places; ++i) unit *= 10;
  const int64_t rest = ((value % unit) + unit) % unit;
  const int64_t below = value - rest;
  const bool is_odd = (below / unit) % 2 != 0;
  const bool rounds_up = rest > unit / 2 || (rest * 2 == unit && is_odd);
  return rounds_up ? below + unit : below;
}

Result<Value> RoundToward(Runtime& runtime, const Value& input, const Value& decimals,
                          double (*round)(double)) {
  KVERN_ASSIGN_OR_RETURN(const Value unit,
                         Apply(runtime, BinaryOp::kPow, Value::Int(10), decimals));
  KVERN_ASSIGN_OR_RETURN(const Value scaled, Apply(runtime, BinaryOp::kMul, input, unit));
  if (scaled.is_integral()) return Apply(runtime, BinaryOp::kDiv, scaled, unit);
  const std::optional<int64_t> whole = Truncate(round(scaled.as_float()));
  if (!whole) return TooLarge(scaled);
  return Apply(runtime, BinaryOp::kDiv, Value::Int(*whole), unit);
}

Result<Value> Round(Runtime& runtime, const Value& input, const Args& args) {
  const Value decimals = args.has(0) ? args[0] : Value::Int(0);
  const std::string_view method =
      args.has(1) && args[1].is_string() ? std::string_view(args[1].str()) : "common";
  if (input.is_undefined()) return UndefinedError(input);
  if (!input.is_number()) {
    return TypeError("type {} doesn't define __round__ method", input.type_name());
  }
  if (method == "ceil") {
    return RoundToward(runtime, input, decimals, [](double x) { return std::ceil(x); });
  }
  if (method == "floor") {
    return RoundToward(runtime, input, decimals, [](double x) { return std::floor(x); });
  }
  if (method != "common") return TemplateError("method must be common, ceil or floor");
  KVERN_ASSIGN_OR_RETURN(const int64_t places, ToIndex(decimals, "precision"));
  if (input.is_float()) return Value::Float(RoundFloat(input.as_float(), places));
  return Value::Int(places >= 0 ? input.as_int() : RoundInt(input.as_int(), -places));
}

const Filter kNumberFilters[] = {
    {"abs", {}, Abs},
    {"float", {{"default"}, 0}, ToFloat},
    {"int", {{"default", "base"}, 0}, ToInt},
    {"round", {{"precision", "method"}, 0}, Round},
};

}  // namespace

std::span<const Filter> NumberFilters() { return kNumberFilters; }

}  // namespace kvern::text::jinja
