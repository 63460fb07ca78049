#include "text/jinja/interpreter.h"

#include <utility>

#include "text/jinja/convert.h"
#include "text/jinja/globals.h"
#include "text/jinja/lexer.h"

namespace kvern::text::jinja {

void Scope::Capture() {
  for (Scope* scope = this; scope != nullptr && !scope->is_captured; scope = scope->parent) {
    scope->is_captured = true;
  }
}

Interpreter::Interpreter(const Limits& limits, const LocalTime& now, const Dict& context)
    : runtime_(limits, now) {
  for (const auto& [name, value] : MakeGlobals(*this)) globals_.variables.emplace(name, value);
  root_.parent = &globals_;
  for (const auto& [name, value] : context.entries()) {
    if (name.is_string()) root_.variables.emplace(name.str(), value);
  }
}

Interpreter::~Interpreter() {
  for (const auto& object : namespaces_) object->Clear();
}

Result<std::string> Interpreter::Render(const Body& body) {
  const Result<Flow> flow = ExecBody(body);
  if (!flow.ok()) return AtLine(error_line_, flow.error());
  return std::move(rendered_);
}

Value Interpreter::Lookup(const std::string& name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return found->second;
  }
  return Value::MakeUndefined(fmt::format("'{}' is undefined", name));
}

void Interpreter::Set(const std::string& name, Value value) {
  scope_->variables.insert_or_assign(name, std::move(value));
}

Status Interpreter::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(runtime_, value));
    if (items.size() != target.items.size()) {
      return TemplateError("cannot unpack {} values into {} names", items.size(),
                           target.items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) {
      KVERN_RETURN_IF_ERROR(Assign(target.items[i], items[i]));
    }
    return {};
  }
  if (!target.attribute) {
    Set(target.name, value);
    return {};
  }
  const Value object = Lookup(target.name);
  auto* const space =
      object.is_object() ? dynamic_cast<NamespaceObject*>(object.object().get()) : nullptr;
  if (space == nullptr) {
    return TemplateError("cannot assign attribute on non-namespace object '{}'", target.name);
  }
  return space->Set(runtime_, *target.attribute, value);
}

Result<Flow> Interpreter::ExecBody(const Body& body) {
  const Runtime::Level level(runtime_);
  KVERN_RETURN_IF_ERROR(level.status());
  for (const auto& statement : body) {
    Result<Flow> flow = Flow::kNext;
    if (const Status step = runtime_.Step(); !step.ok()) {
      flow = step.error();
    } else {
      flow = statement->Exec(*this);
    }
    if (!flow.ok() && error_line_ == 0) error_line_ = statement->line;
    if (!flow.ok() || *flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Status Interpreter::Write(std::string_view text) {
  if (text.size() > runtime_.limits().output_bytes - output_->size()) {
    return Errorf(ErrorCode::kOutOfMemory, "more than {} bytes of output",
                  runtime_.limits().output_bytes);
  }
  // Captured text becomes a value, and is paid for as one.
  if (output_ != &rendered_) KVERN_RETURN_IF_ERROR(runtime_.Charge(text.size()));
  output_->append(text);
  return {};
}

Result<Value> Interpreter::Call(const Value& callee, const CallArgs& args) {
  if (callee.is_undefined()) return UndefinedError(callee);
  if (!callee.is_object()) return TypeError("'{}' object is not callable", callee.type_name());
  const Runtime::Level level(runtime_);
  KVERN_RETURN_IF_ERROR(level.status());
  // The object may be reassigned while it runs.
  const std::shared_ptr<Object> object = callee.object();
  return object->Call(runtime_, args);
}

Value Interpreter::NewNamespace(Dict variables) {
  auto object = std::make_shared<NamespaceObject>(std::move(variables));
  namespaces_.push_back(object);
  return Value::MakeObject(std::move(object));
}

Result<Value> Interpreter::ApplyToText(const Expr& filter, std::string text) {
  Value saved = std::exchange(block_text_, Value::MakeString(std::move(text)));
  Result<Value> value = filter.Eval(*this);
  block_text_ = std::move(saved);
  return value;
}

Interpreter::InScope::InScope(Interpreter& in, Scope& parent)
    : in_(in), previous_(in.scope_), scope_(std::make_unique<Scope>()) {
  scope_->parent = &parent;
  in_.scope_ = scope_.get();
}

Interpreter::InScope::~InScope() {
  in_.scope_ = previous_;
  if (scope_->is_captured) in_.captured_.push_back(std::move(scope_));
}

}  // namespace kvern::text::jinja
