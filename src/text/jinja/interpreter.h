// Interpreter: one rendering of one template: its variables, its output and its budget.
//
// Scopes follow jinja2: loops, macros, with, filter and set blocks open one; if does not; an
// assignment stays in its scope. A macro sees the scopes it was defined in, as they are when it is
// called, so a scope that a macro was defined in lives until the rendering ends.
//
// Single use, single thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

class NamespaceObject;

struct Scope {
  Scope* parent = nullptr;
  std::map<std::string, Value, std::less<>> variables;
  bool is_captured = false;  // a macro may still read it

  // REQUIRES: the rendering that owns the scope goes on.
  void Capture();
};

class Interpreter {
 public:
  Interpreter(const Limits& limits, const LocalTime& now, const Dict& context);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The rendered text. Errors are prefixed with their line.
  Result<std::string> Render(const Body& body);

  // --- For nodes and objects ---

  Runtime& runtime() { return runtime_; }
  Scope& scope() { return *scope_; }

  Value Lookup(const std::string& name) const;
  void Set(const std::string& name, Value value);
  Status Assign(const Target& target, const Value& value);

  Result<Flow> ExecBody(const Body& body);
  Status Write(std::string_view text);

  Result<Value> Call(const Value& callee, const CallArgs& args);

  // Namespaces can hold each other, so they are emptied at the end.
  Value NewNamespace(Dict variables);

  // Everything runs in a new child of `parent` while it lives.
  class [[nodiscard]] InScope {
   public:
    InScope(Interpreter& in, Scope& parent);
    ~InScope();
    InScope(const InScope&) = delete;
    InScope& operator=(const InScope&) = delete;

   private:
    Interpreter& in_;
    Scope* const previous_;
    std::unique_ptr<Scope> scope_;
  };

  // Output goes to Take() while it lives.
  class [[nodiscard]] Capture {
   public:
    explicit Capture(Interpreter& in) : in_(in), previous_(in.output_) { in.output_ = &text_; }
    ~Capture() { in_.output_ = previous_; }
    Capture(const Capture&) = delete;
    Capture& operator=(const Capture&) = delete;
    std::string Take() { return std::move(text_); }

   private:
    Interpreter& in_;
    std::string* const previous_;
    std::string text_;
  };

  // What a filter without input, of a filter or set block, applies to.
  const Value& block_text() const { return block_text_; }
  Result<Value> ApplyToText(const Expr& filter, std::string text);

 private:
  Runtime runtime_;
  Scope globals_;
  Scope root_;
  Scope* scope_ = &root_;
  std::vector<std::unique_ptr<Scope>> captured_;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::string rendered_;
  std::string* output_ = &rendered_;
  Value block_text_;
  int error_line_ = 0;  // of the innermost statement that failed; 0 while none has
};

}  // namespace kvern::text::jinja
