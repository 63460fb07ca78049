// The syntax tree of a template. Nodes evaluate themselves (eval.cc, exec.cc) in an Interpreter.
//
// Immutable after parsing, so one tree may be rendered by many threads at once. The parser bounds
// its height, so recursion over it is safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/operators.h"
#include "text/jinja/value.h"

namespace kvern::text::jinja {

class Interpreter;

// How a statement ended: loops act on break and continue.
enum class Flow { kNext, kBreak, kContinue };

struct Expr {
  virtual ~Expr() = default;
  virtual Result<Value> Eval(Interpreter& in) const = 0;
};
using ExprPtr = std::unique_ptr<const Expr>;

struct Stmt {
  explicit Stmt(int line) : line(line) {}
  virtual ~Stmt() = default;
  virtual Result<Flow> Exec(Interpreter& in) const = 0;
  const int line;
};
using Body = std::vector<std::unique_ptr<const Stmt>>;

// Arguments of a call, filter or test, before evaluation.
struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // *args, may be null
  ExprPtr double_star;  // **kwargs, may be null
  Result<CallArgs> Eval(Interpreter& in) const;
};

// Where an assignment goes: a name, a namespace's attribute, or a tuple of targets.
struct Target {
  std::string name;
  std::optional<std::string> attribute;
  std::vector<Target> items;
  bool is_tuple = false;
};

// --- Expressions ---

struct ConstantExpr final : Expr {
  explicit ConstantExpr(Value value) : value(std::move(value)) {}
  Result<Value> Eval(Interpreter& in) const override;
  Value value;
};

struct NameExpr final : Expr {
  explicit NameExpr(std::string name) : name(std::move(name)) {}
  Result<Value> Eval(Interpreter& in) const override;
  std::string name;
};

struct ListExpr final : Expr {
  ListExpr(std::vector<ExprPtr> items, List::Flavor flavor)
      : items(std::move(items)), flavor(flavor) {}
  Result<Value> Eval(Interpreter& in) const override;
  std::vector<ExprPtr> items;
  List::Flavor flavor;
};

struct DictExpr final : Expr {
  Result<Value> Eval(Interpreter& in) const override;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};

struct ConditionalExpr final : Expr {
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr condition;
  ExprPtr then_value;
  ExprPtr else_value;  // may be null
};

struct LogicalExpr final : Expr {
  LogicalExpr(bool is_or, ExprPtr left, ExprPtr right)
      : is_or(is_or), left(std::move(left)), right(std::move(right)) {}
  Result<Value> Eval(Interpreter& in) const override;
  bool is_or;
  ExprPtr left;
  ExprPtr right;
};

struct NotExpr final : Expr {
  explicit NotExpr(ExprPtr operand) : operand(std::move(operand)) {}
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr operand;
};

struct ComparisonExpr final : Expr {
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};

struct BinaryExpr final : Expr {
  BinaryExpr(BinaryOp op, ExprPtr left, ExprPtr right)
      : op(op), left(std::move(left)), right(std::move(right)) {}
  Result<Value> Eval(Interpreter& in) const override;
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};

struct SignExpr final : Expr {
  SignExpr(bool is_negative, ExprPtr operand)
      : is_negative(is_negative), operand(std::move(operand)) {}
  Result<Value> Eval(Interpreter& in) const override;
  bool is_negative;
  ExprPtr operand;
};

// a ~ b ~ c
struct ConcatExpr final : Expr {
  Result<Value> Eval(Interpreter& in) const override;
  std::vector<ExprPtr> parts;
};

struct AttributeExpr final : Expr {
  AttributeExpr(ExprPtr object, std::string name)
      : object(std::move(object)), name(std::move(name)) {}
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr object;
  std::string name;
};

struct ItemExpr final : Expr {
  ItemExpr(ExprPtr object, ExprPtr key) : object(std::move(object)), key(std::move(key)) {}
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr object;
  ExprPtr key;
};

struct SliceExpr final : Expr {
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr object;
  ExprPtr start;  // bounds may be null
  ExprPtr stop;
  ExprPtr step;
};

struct CallExpr final : Expr {
  CallExpr(ExprPtr callee, Arguments arguments)
      : callee(std::move(callee)), arguments(std::move(arguments)) {}
  Result<Value> Eval(Interpreter& in) const override;
  // With a `caller` for the callee, from a call block.
  Result<Value> EvalWith(Interpreter& in, std::optional<Value> caller) const;
  ExprPtr callee;
  Arguments arguments;
};

struct FilterExpr final : Expr {
  FilterExpr(ExprPtr input, std::string name, Arguments arguments)
      : input(std::move(input)), name(std::move(name)), arguments(std::move(arguments)) {}
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr input;  // null: the text of the enclosing filter or set block
  std::string name;
  Arguments arguments;
};

struct TestExpr final : Expr {
  TestExpr(ExprPtr subject, std::string name, Arguments arguments)
      : subject(std::move(subject)), name(std::move(name)), arguments(std::move(arguments)) {}
  Result<Value> Eval(Interpreter& in) const override;
  ExprPtr subject;
  std::string name;
  Arguments arguments;
};

// --- Statements ---

struct TextStmt final : Stmt {
  TextStmt(int line, std::string text) : Stmt(line), text(std::move(text)) {}
  Result<Flow> Exec(Interpreter& in) const override;
  std::string text;
};

struct OutputStmt final : Stmt {
  OutputStmt(int line, ExprPtr value) : Stmt(line), value(std::move(value)) {}
  Result<Flow> Exec(Interpreter& in) const override;
  ExprPtr value;
};

struct IfStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body else_body;
};

struct ForStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be null
  Body body;
  Body else_body;
  bool is_recursive = false;
};

struct SetStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  Target target;
  ExprPtr value;
};

struct SetBlockStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  Target target;
  ExprPtr filter;  // may be null
  Body body;
};

// What macros and call blocks share.
struct MacroBody {
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  // The body mentions these special names.
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

struct MacroStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  std::string name;
  MacroBody macro;
};

struct CallBlockStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  std::unique_ptr<const CallExpr> call;
  MacroBody caller;
};

struct FilterBlockStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  ExprPtr filter;
  Body body;
};

struct WithStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  std::vector<std::pair<Target, ExprPtr>> variables;
  Body body;
};

// {% generation %}: the assistant's own words; a scope, and otherwise transparent.
struct GenerationStmt final : Stmt {
  using Stmt::Stmt;
  Result<Flow> Exec(Interpreter& in) const override;
  Body body;
};

struct JumpStmt final : Stmt {
  JumpStmt(int line, Flow flow) : Stmt(line), flow(flow) {}
  Result<Flow> Exec(Interpreter& in) const override;
  Flow flow;
};

}  // namespace kvern::text::jinja
