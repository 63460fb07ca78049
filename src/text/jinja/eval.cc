// How expressions evaluate.
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/attributes.h"
#include "text/jinja/convert.h"
#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/tests.h"

// One step and one level for the expression that evaluates.
#define KVERN_JINJA_ENTER(in)                 \
  const Runtime::Level level((in).runtime()); \
  KVERN_RETURN_IF_ERROR(level.status());      \
  KVERN_RETURN_IF_ERROR((in).runtime().Step())

namespace kvern::text::jinja {

Result<CallArgs> Arguments::Eval(Interpreter& in) const {
  CallArgs args;
  for (const ExprPtr& argument : positional) {
    KVERN_ASSIGN_OR_RETURN(Value value, argument->Eval(in));
    args.positional.push_back(std::move(value));
  }
  if (star) {
    KVERN_ASSIGN_OR_RETURN(const Value list, star->Eval(in));
    KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(in.runtime(), list));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, argument] : named) {
    KVERN_ASSIGN_OR_RETURN(Value value, argument->Eval(in));
    args.named.emplace_back(name, std::move(value));
  }
  if (double_star) {
    KVERN_ASSIGN_OR_RETURN(const Value dict, double_star->Eval(in));
    if (!dict.is_dict()) return TypeError("argument after ** must be a mapping");
    KVERN_RETURN_IF_ERROR(in.runtime().Step(dict.dict().size()));
    for (const auto& [name, value] : dict.dict().entries()) {
      if (!name.is_string()) return TypeError("keywords must be strings");
      args.named.emplace_back(name.str(), value);
    }
  }
  return args;
}

Result<Value> ConstantExpr::Eval(Interpreter&) const { return value; }

Result<Value> NameExpr::Eval(Interpreter& in) const {
  KVERN_RETURN_IF_ERROR(in.runtime().Step());
  return in.Lookup(name);
}

Result<Value> ListExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  std::vector<Value> values;
  values.reserve(items.size());
  for (const ExprPtr& item : items) {
    KVERN_ASSIGN_OR_RETURN(Value value, item->Eval(in));
    values.push_back(std::move(value));
  }
  return in.runtime().NewList(std::move(values), flavor);
}

Result<Value> DictExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  Dict dict;
  for (const auto& [key_expr, value_expr] : entries) {
    KVERN_ASSIGN_OR_RETURN(const Value key, key_expr->Eval(in));
    KVERN_ASSIGN_OR_RETURN(Value value, value_expr->Eval(in));
    if (!Dict::IsHashable(key)) return TypeError("unhashable type: '{}'", key.type_name());
    dict.Set(key, std::move(value));
  }
  return in.runtime().NewDict(std::move(dict));
}

Result<Value> ConditionalExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value chosen, condition->Eval(in));
  if (chosen.IsTrue()) return then_value->Eval(in);
  if (else_value) return else_value->Eval(in);
  return Value::MakeUndefined("the inline if-expression was false and has no else");
}

Result<Value> LogicalExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(Value value, left->Eval(in));
  return value.IsTrue() == is_or ? Result<Value>(std::move(value)) : right->Eval(in);
}

Result<Value> NotExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value value, operand->Eval(in));
  return Value::Bool(!value.IsTrue());
}

Result<Value> ComparisonExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(Value left, first->Eval(in));
  for (const auto& [op, operand] : rest) {
    KVERN_ASSIGN_OR_RETURN(Value right, operand->Eval(in));
    KVERN_ASSIGN_OR_RETURN(const bool holds, Compare(in.runtime(), op, left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> BinaryExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value left_value, left->Eval(in));
  KVERN_ASSIGN_OR_RETURN(const Value right_value, right->Eval(in));
  return Apply(in.runtime(), op, left_value, right_value);
}

Result<Value> SignExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value value, operand->Eval(in));
  return is_negative ? Negate(value) : Plus(value);
}

Result<Value> ConcatExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  std::string text;
  std::vector<Value> values;
  for (const ExprPtr& part : parts) {
    KVERN_ASSIGN_OR_RETURN(Value value, part->Eval(in));
    values.push_back(std::move(value));
  }
  for (const Value& value : values) {
    KVERN_ASSIGN_OR_RETURN(const std::string part, ToStr(in.runtime(), value));
    KVERN_RETURN_IF_ERROR(in.runtime().Charge(part.size()));
    text += part;
  }
  return Value::MakeString(std::move(text));
}

Result<Value> AttributeExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value value, object->Eval(in));
  return GetAttr(in.runtime(), value, name);
}

Result<Value> ItemExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value value, object->Eval(in));
  KVERN_ASSIGN_OR_RETURN(const Value key_value, key->Eval(in));
  return GetItem(in.runtime(), value, key_value);
}

Result<Value> SliceExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value value, object->Eval(in));
  SliceBounds bounds{Value::None(), Value::None(), Value::None()};
  if (start) {
    KVERN_ASSIGN_OR_RETURN(bounds.start, start->Eval(in));
  }
  if (stop) {
    KVERN_ASSIGN_OR_RETURN(bounds.stop, stop->Eval(in));
  }
  if (step) {
    KVERN_ASSIGN_OR_RETURN(bounds.step, step->Eval(in));
  }
  return GetSlice(in.runtime(), value, bounds);
}

Result<Value> CallExpr::Eval(Interpreter& in) const { return EvalWith(in, std::nullopt); }

Result<Value> CallExpr::EvalWith(Interpreter& in, std::optional<Value> caller) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value function, callee->Eval(in));
  KVERN_ASSIGN_OR_RETURN(CallArgs args, arguments.Eval(in));
  if (caller) args.named.emplace_back("caller", *std::move(caller));
  return in.Call(function, args);
}

Result<Value> FilterExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  Value value = in.block_text();
  if (input) {
    KVERN_ASSIGN_OR_RETURN(value, input->Eval(in));
  }
  KVERN_ASSIGN_OR_RETURN(const CallArgs args, arguments.Eval(in));
  return CallFilter(in.runtime(), name, value, args);
}

Result<Value> TestExpr::Eval(Interpreter& in) const {
  KVERN_JINJA_ENTER(in);
  KVERN_ASSIGN_OR_RETURN(const Value value, subject->Eval(in));
  KVERN_ASSIGN_OR_RETURN(const CallArgs args, arguments.Eval(in));
  KVERN_ASSIGN_OR_RETURN(const bool holds, CallTest(in.runtime(), name, value, args));
  return Value::Bool(holds);
}

}  // namespace kvern::text::jinja
