#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/convert.h"
#include "text/jinja/printf_format.h"

namespace kvern::text::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
constexpr std::string_view kCompareSymbols[] = {"==", "!=", "<", "<=", ">", ">=", "in", "not in"};

Error Unsupported(BinaryOp op, const Value& left, const Value& right) {
  return TypeError("unsupported operand type(s) for {}: '{}' and '{}'",
                   kSymbols[static_cast<size_t>(op)], left.type_name(), right.type_name());
}

Error TooLarge() { return Errorf(ErrorCode::kUnsupported, "integer result does not fit 64 bits"); }

Result<Value> IntPow(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return TemplateError("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return TooLarge();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return Value::Int(result);
}

Result<Value> IntOp(BinaryOp op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOp::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case BinaryOp::kSub:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case BinaryOp::kMul:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case BinaryOp::kDiv:
      if (right == 0) return TemplateError("division by zero");
      return Value::Float(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: {
      if (right == 0) return TemplateError("integer division or modulo by zero");
      if (right == -1) return op == BinaryOp::kMod ? Value::Int(0) : IntOp(BinaryOp::kSub, 0, left);
      const int64_t remainder = left % right;
      const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
      if (op == BinaryOp::kMod) return Value::Int(adjust ? remainder + right : remainder);
      return Value::Int(left / right - (adjust ? 1 : 0));
    }
    case BinaryOp::kPow:
      return IntPow(left, right);
  }
  if (overflow) return TooLarge();
  return Value::Int(result);
}

double FloatMod(double left, double right) {
  double mod = std::fmod(left, right);
  if (mod != 0) {
    if ((right < 0) != (mod < 0)) mod += right;
  } else {
    mod = std::copysign(0.0, right);
  }
  return mod;
}

double FloatFloorDiv(double left, double right) {
  const double mod = FloatMod(left, right);
  const double quotient = (left - mod) / right;
  if (quotient == 0) return std::copysign(0.0, left / right);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Result<Value> FloatOp(BinaryOp op, double left, double right) {
  const bool divides = op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv || op == BinaryOp::kMod;
  if (divides && right == 0) return TemplateError("float division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(left + right);
    case BinaryOp::kSub:
      return Value::Float(left - right);
    case BinaryOp::kMul:
      return Value::Float(left * right);
    case BinaryOp::kDiv:
      return Value::Float(left / right);
    case BinaryOp::kFloorDiv:
      return Value::Float(FloatFloorDiv(left, right));
    case BinaryOp::kMod:
      return Value::Float(FloatMod(left, right));
    case BinaryOp::kPow: {
      if (left == 0 && right < 0) return TemplateError("0.0 cannot be raised to a negative power");
      const double power = std::pow(left, right);
      if (std::isnan(power) && !std::isnan(left) && !std::isnan(right)) {
        return Errorf(ErrorCode::kUnsupported, "complex numbers are not supported");
      }
      if (std::isinf(power) && std::isfinite(left) && std::isfinite(right)) {
        return TemplateError("result too large");
      }
      return Value::Float(power);
    }
  }
  return Value::Float(0);
}

Result<Value> Repeat(Runtime& runtime, const Value& sequence, int64_t count) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t unit = sequence.is_string() ? sequence.str().size() : sequence.items().size();
  if (unit > 0 && times > runtime.limits().allocated_bytes / unit) {
    return runtime.Charge(runtime.limits().allocated_bytes + 1).error();
  }
  KVERN_RETURN_IF_ERROR(runtime.Charge(unit * times));
  if (sequence.is_string()) {
    std::string out;
    out.reserve(unit * times);
    for (size_t i = 0; unit > 0 && i < times; ++i) out += sequence.str();
    return Value::MakeString(std::move(out), sequence.is_safe_string());
  }
  KVERN_RETURN_IF_ERROR(runtime.Step(unit * times));
  std::vector<Value> items;
  for (size_t i = 0; unit > 0 && i < times; ++i) {
    items.insert(items.end(), sequence.items().begin(), sequence.items().end());
  }
  return runtime.NewList(std::move(items), sequence.list().flavor);
}

bool IsRepeatable(const Value& value) {
  return value.is_string() || (value.is_list() && value.list().is_indexable() &&
                               value.list().flavor != List::Flavor::kRange);
}

Result<Value> AddStrings(Runtime& runtime, const Value& left, const Value& right) {
  const bool is_safe = left.is_safe_string() || right.is_safe_string();
  KVERN_RETURN_IF_ERROR(runtime.Charge(left.str().size() + right.str().size()));
  if (!is_safe) return Value::MakeString(left.str() + right.str());
  KVERN_ASSIGN_OR_RETURN(std::string text, EscapeValue(runtime, left));
  KVERN_ASSIGN_OR_RETURN(const std::string tail, EscapeValue(runtime, right));
  return runtime.NewString(text + tail, true);
}

Result<Value> AddLists(Runtime& runtime, const Value& left, const Value& right) {
  KVERN_RETURN_IF_ERROR(runtime.Step(left.items().size() + right.items().size()));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return runtime.NewList(std::move(items), left.list().flavor);
}

// -1, 0, 1; nothing when a NaN is among them.
std::optional<int> CompareNumbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_int() < right.as_int() ? -1 : left.as_int() > right.as_int();
  }
  // Exact, as Python compares: 2**53 + 1 is not 2.0**53.
  const auto a = left.is_float() ? static_cast<long double>(left.as_float())
                                 : static_cast<long double>(left.as_int());
  const auto b = right.is_float() ? static_cast<long double>(right.as_float())
                                  : static_cast<long double>(right.as_int());
  if (std::isnan(a) || std::isnan(b)) return std::nullopt;
  return a < b ? -1 : a > b;
}

bool DictsEqual(const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* const other = right.Find(key);
    if (other == nullptr || !Equals(value, *other)) return false;
  }
  return true;
}

bool Ordered(CompareOp op, int order) {
  switch (op) {
    case CompareOp::kLt:
      return order < 0;
    case CompareOp::kLe:
      return order <= 0;
    case CompareOp::kGt:
      return order > 0;
    default:
      return order >= 0;
  }
}

Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (item.is_undefined()) return TypeError("'in <string>' requires string, not Undefined");
    if (!item.is_string()) {
      return TypeError("'in <string>' requires string as left operand, not {}", item.type_name());
    }
    return container.str().find(item.str()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!Dict::IsHashable(item)) return TypeError("unhashable type: '{}'", item.type_name());
    return container.dict().Find(item) != nullptr;
  }
  if (!container.is_list() && !container.is_iterator() && !container.is_undefined()) {
    return TypeError("argument of type '{}' is not iterable", container.type_name());
  }
  KVERN_ASSIGN_OR_RETURN(const auto iterator, Iterate(runtime, container));
  while (true) {
    KVERN_RETURN_IF_ERROR(runtime.Step());
    KVERN_ASSIGN_OR_RETURN(const std::optional<Value> next, iterator->Next(runtime));
    if (!next) return false;
    if (Equals(*next, item)) return true;
  }
}

bool AreComparableLists(const Value& left, const Value& right) {
  return left.is_list() && right.is_list() && left.list().flavor == right.list().flavor &&
         IsRepeatable(left);
}

Result<bool> CompareOrder(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    const std::optional<int> order = CompareNumbers(left, right);
    return order && Ordered(op, *order);
  }
  if (left.is_string() && right.is_string()) return Ordered(op, left.str().compare(right.str()));
  if (AreComparableLists(left, right)) {
    const size_t common = std::min(left.items().size(), right.items().size());
    KVERN_RETURN_IF_ERROR(runtime.Step(common));
    for (size_t i = 0; i < common; ++i) {
      if (!Equals(left.items()[i], right.items()[i])) {
        return CompareOrder(runtime, op, left.items()[i], right.items()[i]);
      }
    }
    const size_t a = left.items().size();
    const size_t b = right.items().size();
    return Ordered(op, a < b ? -1 : a > b);
  }
  return TypeError("'{}' not supported between instances of '{}' and '{}'",
                   kCompareSymbols[static_cast<size_t>(op)], left.type_name(), right.type_name());
}

}  // namespace

Result<Value> Apply(Runtime& runtime, BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::kMod && left.is_string()) return PrintfFormat(runtime, left, right);
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  if (left.is_integral() && right.is_integral()) return IntOp(op, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return FloatOp(op, left.as_float(), right.as_float());
  if (op == BinaryOp::kAdd) {
    if (left.is_string() && right.is_string()) return AddStrings(runtime, left, right);
    if (AreComparableLists(left, right)) return AddLists(runtime, left, right);
  }
  if (op == BinaryOp::kMul) {
    if (IsRepeatable(left) && right.is_integral()) return Repeat(runtime, left, right.as_int());
    if (IsRepeatable(right) && left.is_integral()) return Repeat(runtime, right, left.as_int());
  }
  return Unsupported(op, left, right);
}

Result<Value> Negate(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_float()) return Value::Float(-value.as_float());
  if (value.is_integral()) return IntOp(BinaryOp::kSub, 0, value.as_int());
  return TypeError("bad operand type for unary -: '{}'", value.type_name());
}

Result<Value> Plus(const Value& value) {
  if (value.is_undefined()) return UndefinedError(value);
  if (value.is_float()) return value;
  if (value.is_integral()) return Value::Int(value.as_int());
  return TypeError("bad operand type for unary +: '{}'", value.type_name());
}

bool Equals(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    return CompareNumbers(left, right) == std::optional<int>(0);
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      return left.str() == right.str();
    case Value::Kind::kList:
      return left.list().flavor == right.list().flavor &&
             std::equal(left.items().begin(), left.items().end(), right.items().begin(),
                        right.items().end(), Equals);
    case Value::Kind::kDict:
      return DictsEqual(left.dict(), right.dict());
    default:
      return left.IsSame(right);
  }
}

Result<bool> Compare(Runtime& runtime, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEq:
      return Equals(left, right);
    case CompareOp::kNe:
      return !Equals(left, right);
    case CompareOp::kIn:
    case CompareOp::kNotIn: {
      KVERN_ASSIGN_OR_RETURN(const bool contains, Contains(runtime, right, left));
      return contains == (op == CompareOp::kIn);
    }
    default:
      if (left.is_undefined()) return UndefinedError(left);
      if (right.is_undefined()) return UndefinedError(right);
      return CompareOrder(runtime, op, left, right);
  }
}

Result<bool> Less(Runtime& runtime, const Value& left, const Value& right) {
  return Compare(runtime, CompareOp::kLt, left, right);
}

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

Result<std::string> EscapeValue(Runtime& runtime, const Value& value) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, value));
  if (value.is_safe_string()) return text;
  KVERN_RETURN_IF_ERROR(runtime.Charge(text.size()));
  return EscapeHtml(text);
}

}  // namespace kvern::text::jinja
