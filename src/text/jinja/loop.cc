// The for statement and the `loop` variable in its body.
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "text/jinja/ast.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"

namespace kvern::text::jinja {
namespace {

// A loop as it runs: its for statement, the scope that this stands in, and how deep it recurses.
struct LoopSite {
  const ForStmt& node;
  Scope& scope;
  int depth;
};

Result<Flow> RunLoop(Interpreter& in, const LoopSite& site, const Value& iterable);

// The `loop` variable. Elements are read ahead only where the template asks about them, since a
// loop's filter may depend on what the body does.
class LoopObject final : public Object, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(Interpreter& in, const LoopSite& site) : in_(in), site_(site) {}

  std::string_view type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return true; }
  Result<std::optional<Value>> GetAttr(Runtime& runtime, std::string_view name) override;
  // loop(children) in a recursive loop: the text of the loop over the children.
  Result<Value> Call(Runtime& runtime, const CallArgs& args) override;

  Status Start(const Value& iterable) {
    KVERN_ASSIGN_OR_RETURN(source_, Iterate(in_.runtime(), iterable));
    is_running_ = true;
    return {};
  }

  // Moves to the next element; false at the end.
  Result<bool> Advance();
  const Value& current() const { return *current_; }

  // Drops what it refers to: a loop that outlives its run, in a namespace, must hold nothing.
  void Finish() {
    is_running_ = false;
    source_.reset();
    ahead_.clear();
    previous_.reset();
    current_.reset();
    changed_.reset();
  }

  Result<Value> Cycle(const CallArgs& args) const;
  Result<Value> Changed(const CallArgs& args);

 private:
  // Has `count` elements ahead of the current one, or as many as there are.
  Result<bool> ReadAhead(size_t count);
  Result<bool> Passes(const Value& item);

  Interpreter& in_;
  const LoopSite site_;
  bool is_running_ = false;
  std::shared_ptr<Iterator> source_;  // null at its end
  std::deque<Value> ahead_;
  std::optional<Value> previous_;
  std::optional<Value> current_;
  std::optional<Value> changed_;  // the last arguments of loop.changed()
  size_t index_ = 0;
};

// loop.cycle and loop.changed.
class LoopMethod final : public Object {
 public:
  LoopMethod(std::shared_ptr<LoopObject> loop, bool is_cycle)
      : loop_(std::move(loop)), is_cycle_(is_cycle) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Result<Value> Call(Runtime&, const CallArgs& args) override {
    return is_cycle_ ? loop_->Cycle(args) : loop_->Changed(args);
  }

 private:
  std::shared_ptr<LoopObject> loop_;
  bool is_cycle_;
};

Result<bool> LoopObject::Passes(const Value& item) {
  if (!site_.node.filter) return true;
  const Interpreter::InScope scope(in_, site_.scope);
  KVERN_RETURN_IF_ERROR(in_.Assign(site_.node.target, item));
  KVERN_ASSIGN_OR_RETURN(const Value kept, site_.node.filter->Eval(in_));
  return kept.IsTrue();
}

Result<bool> LoopObject::ReadAhead(size_t count) {
  while (ahead_.size() < count && source_) {
    KVERN_RETURN_IF_ERROR(in_.runtime().Step());
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> item, source_->Next(in_.runtime()));
    if (!item) {
      source_.reset();
      break;
    }
    KVERN_ASSIGN_OR_RETURN(const bool passes, Passes(*item));
    if (passes) {
      KVERN_RETURN_IF_ERROR(in_.runtime().Charge(sizeof(Value)));
      ahead_.push_back(*std::move(item));
    }
  }
  return ahead_.size() >= count;
}

Result<bool> LoopObject::Advance() {
  KVERN_ASSIGN_OR_RETURN(const bool has_next, ReadAhead(1));
  previous_ = std::exchange(current_, std::nullopt);
  if (!has_next) return false;
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  ++index_;
  return true;
}

Result<std::optional<Value>> LoopObject::GetAttr(Runtime& runtime, std::string_view name) {
  using Found = std::optional<Value>;
  const auto index = static_cast<int64_t>(index_);
  if (name == "index") return Found(Value::Int(index));
  if (name == "index0") return Found(Value::Int(index - 1));
  if (name == "first") return Found(Value::Bool(index == 1));
  if (name == "depth") return Found(Value::Int(site_.depth));
  if (name == "depth0") return Found(Value::Int(site_.depth - 1));
  if (name == "previtem") {
    return Found(previous_ ? *previous_ : Value::MakeUndefined("there is no previous item"));
  }
  if (name == "cycle" || name == "changed") {
    return Found(
        Value::MakeObject(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle")));
  }
  if (name == "last" || name == "nextitem") {
    KVERN_ASSIGN_OR_RETURN(const bool has_next, ReadAhead(1));
    if (name == "last") return Found(Value::Bool(!has_next));
    return Found(has_next ? ahead_.front() : Value::MakeUndefined("there is no next item"));
  }
  if (name != "length" && name != "revindex" && name != "revindex0") return Found();
  KVERN_RETURN_IF_ERROR(ReadAhead(runtime.limits().steps));
  const auto ahead = static_cast<int64_t>(ahead_.size());
  return Found(Value::Int(name == "length"     ? index + ahead
                          : name == "revindex" ? ahead + 1
                                               : ahead));
}

Result<Value> LoopObject::Cycle(const CallArgs& args) const {
  if (args.positional.empty()) return TypeError("no items for cycling given");
  if (index_ == 0) return TemplateError("the loop has not begun");
  return args.positional[(index_ - 1) % args.positional.size()];
}

Result<Value> LoopObject::Changed(const CallArgs& args) {
  if (!is_running_) return TemplateError("loop.changed() of a loop that has ended");
  KVERN_ASSIGN_OR_RETURN(Value now, in_.runtime().NewList(args.positional, List::Flavor::kTuple));
  if (changed_ && Equals(*changed_, now)) return Value::Bool(false);
  changed_ = std::move(now);
  return Value::Bool(true);
}

Result<Value> LoopObject::Call(Runtime&, const CallArgs& args) {
  if (!site_.node.is_recursive) {
    return TypeError("the loop needs the 'recursive' marker to be called");
  }
  if (args.positional.size() != 1 || !args.named.empty()) {
    return TypeError("loop() takes one iterable");
  }
  Interpreter::Capture capture(in_);
  const LoopSite deeper{site_.node, site_.scope, site_.depth + 1};
  KVERN_RETURN_IF_ERROR(RunLoop(in_, deeper, args.positional[0]));
  return Value::MakeString(capture.Take());
}

Result<Flow> RunLoop(Interpreter& in, const LoopSite& site, const Value& iterable) {
  const auto loop = std::make_shared<LoopObject>(in, site);
  const Value loop_value = Value::MakeObject(loop);
  struct Finisher {
    LoopObject& loop;
    ~Finisher() { loop.Finish(); }
  } finisher{*loop};
  KVERN_RETURN_IF_ERROR(loop->Start(iterable));
  // As in jinja2, else also runs when every round was left by break or continue.
  bool completed_a_round = false;
  while (true) {
    KVERN_ASSIGN_OR_RETURN(const bool has_next, loop->Advance());
    if (!has_next) break;
    const Interpreter::InScope scope(in, site.scope);
    in.Set("loop", loop_value);
    KVERN_RETURN_IF_ERROR(in.Assign(site.node.target, loop->current()));
    KVERN_ASSIGN_OR_RETURN(const Flow flow, in.ExecBody(site.node.body));
    if (flow == Flow::kBreak) break;
    completed_a_round |= flow == Flow::kNext;
  }
  if (completed_a_round || site.node.else_body.empty()) return Flow::kNext;
  const Interpreter::InScope scope(in, site.scope);
  return in.ExecBody(site.node.else_body);
}

}  // namespace

Result<Flow> ForStmt::Exec(Interpreter& in) const {
  KVERN_ASSIGN_OR_RETURN(const Value values, iterable->Eval(in));
  return RunLoop(in, LoopSite{*this, in.scope(), 1}, values);
}

}  // namespace kvern::text::jinja
