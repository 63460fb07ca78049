// How statements run. Loops are in loop.cc, macros in macro.cc.
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/convert.h"
#include "text/jinja/interpreter.h"

namespace kvern::text::jinja {

Result<Flow> TextStmt::Exec(Interpreter& in) const {
  KVERN_RETURN_IF_ERROR(in.Write(text));
  return Flow::kNext;
}

Result<Flow> OutputStmt::Exec(Interpreter& in) const {
  KVERN_ASSIGN_OR_RETURN(const Value result, value->Eval(in));
  if (result.is_string()) {
    KVERN_RETURN_IF_ERROR(in.Write(result.str()));
    return Flow::kNext;
  }
  KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(in.runtime(), result));
  KVERN_RETURN_IF_ERROR(in.Write(text));
  return Flow::kNext;
}

Result<Flow> IfStmt::Exec(Interpreter& in) const {
  for (const auto& [condition, body] : branches) {
    KVERN_ASSIGN_OR_RETURN(const Value chosen, condition->Eval(in));
    if (chosen.IsTrue()) return in.ExecBody(body);
  }
  return in.ExecBody(else_body);
}

Result<Flow> SetStmt::Exec(Interpreter& in) const {
  KVERN_ASSIGN_OR_RETURN(const Value result, value->Eval(in));
  KVERN_RETURN_IF_ERROR(in.Assign(target, result));
  return Flow::kNext;
}

Result<Flow> SetBlockStmt::Exec(Interpreter& in) const {
  Interpreter::Capture capture(in);
  Flow flow = Flow::kNext;
  {
    const Interpreter::InScope scope(in, in.scope());
    KVERN_ASSIGN_OR_RETURN(flow, in.ExecBody(body));
  }
  if (flow != Flow::kNext) return flow;
  Value value = Value::MakeString(capture.Take());
  if (filter) {
    KVERN_ASSIGN_OR_RETURN(value, in.ApplyToText(*filter, value.str()));
  }
  KVERN_RETURN_IF_ERROR(in.Assign(target, value));
  return Flow::kNext;
}

Result<Flow> FilterBlockStmt::Exec(Interpreter& in) const {
  std::string text;
  {
    Interpreter::Capture capture(in);
    const Interpreter::InScope scope(in, in.scope());
    KVERN_ASSIGN_OR_RETURN(const Flow flow, in.ExecBody(body));
    if (flow != Flow::kNext) return flow;
    text = capture.Take();
  }
  KVERN_ASSIGN_OR_RETURN(const Value value, in.ApplyToText(*filter, std::move(text)));
  KVERN_ASSIGN_OR_RETURN(const std::string filtered, ToStr(in.runtime(), value));
  KVERN_RETURN_IF_ERROR(in.Write(filtered));
  return Flow::kNext;
}

Result<Flow> WithStmt::Exec(Interpreter& in) const {
  std::vector<Value> values;
  for (const auto& [target, expression] : variables) {
    KVERN_ASSIGN_OR_RETURN(Value value, expression->Eval(in));
    values.push_back(std::move(value));
  }
  const Interpreter::InScope scope(in, in.scope());
  for (size_t i = 0; i < values.size(); ++i) {
    KVERN_RETURN_IF_ERROR(in.Assign(variables[i].first, values[i]));
  }
  return in.ExecBody(body);
}

Result<Flow> GenerationStmt::Exec(Interpreter& in) const {
  const Interpreter::InScope scope(in, in.scope());
  return in.ExecBody(body);
}

Result<Flow> JumpStmt::Exec(Interpreter&) const { return flow; }

}  // namespace kvern::text::jinja
