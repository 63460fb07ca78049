// Macros, and call blocks, whose body is a macro named `caller`.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"

namespace kvern::text::jinja {
namespace {

class MacroObject final : public Object {
 public:
  MacroObject(Interpreter& in, std::string name, const MacroBody& macro)
      : in_(in), name_(std::move(name)), macro_(macro), scope_(in.scope()) {
    scope_.Capture();
  }

  std::string_view type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  Result<std::string> Repr(Runtime&) const override { return fmt::format("<Macro '{}'>", name_); }
  Result<std::optional<Value>> GetAttr(Runtime& runtime, std::string_view name) override;

  Result<Value> Call(Runtime&, const CallArgs& args) override {
    Interpreter::Capture capture(in_);
    const Interpreter::InScope scope(in_, scope_);
    KVERN_RETURN_IF_ERROR(BindParameters(args));
    KVERN_RETURN_IF_ERROR(in_.ExecBody(macro_.body));
    return Value::MakeString(capture.Take());
  }

 private:
  // Sets the parameters in the scope of the call.
  Status BindParameters(const CallArgs& args);
  Status BindSpecial(const CallArgs& args, Dict rest);
  bool HasParameter(std::string_view name) const {
    return std::find(macro_.parameters.begin(), macro_.parameters.end(), name) !=
           macro_.parameters.end();
  }

  Interpreter& in_;
  const std::string name_;
  const MacroBody& macro_;
  Scope& scope_;
};

Result<std::optional<Value>> MacroObject::GetAttr(Runtime&, std::string_view name) {
  using Found = std::optional<Value>;
  if (name == "name") return Found(Value::MakeString(name_));
  if (name == "catch_kwargs") return Found(Value::Bool(macro_.uses_kwargs));
  if (name == "catch_varargs") return Found(Value::Bool(macro_.uses_varargs));
  if (name == "caller") return Found(Value::Bool(macro_.uses_caller));
  if (name != "arguments") return Found();
  std::vector<Value> names;
  for (const std::string& parameter : macro_.parameters)
    names.push_back(Value::MakeString(parameter));
  return Found(Value::Tuple(std::move(names)));
}

Status MacroObject::BindParameters(const CallArgs& args) {
  Dict named;
  for (const auto& [name, value] : args.named) named.Set(name, value);
  const size_t count = macro_.parameters.size();
  const size_t num_given = std::min(count, args.positional.size());
  for (size_t i = 0; i < num_given; ++i) in_.Set(macro_.parameters[i], args.positional[i]);
  const size_t first_default = count - macro_.defaults.size();
  std::vector<std::string> taken;
  for (size_t i = num_given; i < count; ++i) {
    const std::string& name = macro_.parameters[i];
    if (const Value* const value = named.Find(name)) {
      in_.Set(name, *value);
      taken.push_back(name);
    } else if (i >= first_default) {
      KVERN_ASSIGN_OR_RETURN(Value value, macro_.defaults[i - first_default]->Eval(in_));
      in_.Set(name, std::move(value));
    } else {
      in_.Set(name, Value::MakeUndefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  Dict rest;
  for (const auto& [name, value] : args.named) {
    if (std::find(taken.begin(), taken.end(), name) == taken.end()) rest.Set(name, value);
  }
  return BindSpecial(args, std::move(rest));
}

Status MacroObject::BindSpecial(const CallArgs& args, Dict rest) {
  const size_t count = macro_.parameters.size();
  if (macro_.uses_caller && !HasParameter("caller")) {
    const Value* const caller = rest.Find("caller");
    in_.Set("caller", caller != nullptr ? *caller : Value::MakeUndefined("No caller defined"));
    Dict others;
    for (const auto& [name, value] : rest.entries()) {
      if (name.str() != "caller") others.Set(name, value);
    }
    rest = std::move(others);
  }
  if (macro_.uses_kwargs) {
    in_.Set("kwargs", Value::MakeDict(std::move(rest)));
  } else if (rest.size() > 0) {
    return TypeError("macro '{}' takes no keyword argument '{}'", name_,
                     rest.entries().front().first.str());
  }
  if (macro_.uses_varargs) {
    std::vector<Value> extra;
    for (size_t i = count; i < args.positional.size(); ++i) extra.push_back(args.positional[i]);
    in_.Set("varargs", Value::Tuple(std::move(extra)));
  } else if (args.positional.size() > count) {
    return TypeError("macro '{}' takes not more than {} argument(s)", name_, count);
  }
  return {};
}

}  // namespace

Result<Flow> MacroStmt::Exec(Interpreter& in) const {
  in.Set(name, Value::MakeObject(std::make_shared<MacroObject>(in, name, macro)));
  return Flow::kNext;
}

Result<Flow> CallBlockStmt::Exec(Interpreter& in) const {
  Value macro = Value::MakeObject(std::make_shared<MacroObject>(in, "caller", caller));
  KVERN_ASSIGN_OR_RETURN(const Value result, call->EvalWith(in, std::move(macro)));
  if (result.is_string()) {
    KVERN_RETURN_IF_ERROR(in.Write(result.str()));
    return Flow::kNext;
  }
  return OutputStmt(line, std::make_unique<ConstantExpr>(result)).Exec(in);
}

}  // namespace kvern::text::jinja
