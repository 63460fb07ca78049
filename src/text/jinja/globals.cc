#include "text/jinja/globals.h"

#include <ctime>
#include <memory>
#include <optional>

#include "text/jinja/convert.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/signature.h"

namespace kvern::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox has the same

struct GlobalFunction {
  std::string_view name;
  Signature signature;
  Result<Value> (*run)(Interpreter& in, const Args& args);
};

class FunctionObject final : public Object {
 public:
  FunctionObject(Interpreter& in, const GlobalFunction& function) : in_(in), function_(function) {}

  std::string_view type_name() const override { return "function"; }
  bool is_callable() const override { return true; }
  Result<Value> Call(Runtime&, const CallArgs& args) override {
    KVERN_ASSIGN_OR_RETURN(const Args bound, Bind(function_.name, function_.signature, args));
    return function_.run(in_, bound);
  }
  Result<std::string> Repr(Runtime&) const override {
    return fmt::format("<function {}>", function_.name);
  }

 private:
  Interpreter& in_;
  const GlobalFunction& function_;
};

int DepthBelow(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items)
      : items_(std::move(items)), depth_(DepthBelow(items_)) {}

  std::string_view type_name() const override { return "Cycler"; }
  int depth() const override { return depth_; }
  Result<std::optional<Value>> GetAttr(Runtime& runtime, std::string_view name) override;

  Value Next() {
    Value item = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return item;
  }
  void Reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  int depth_;
  size_t at_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycler> cycler, bool is_reset)
      : cycler_(std::move(cycler)), is_reset_(is_reset) {}

  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Result<Value> Call(Runtime&, const CallArgs&) override {
    if (!is_reset_) return cycler_->Next();
    cycler_->Reset();
    return Value::None();
  }
  int depth() const override { return cycler_->depth() + 1; }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool is_reset_;
};

Result<std::optional<Value>> Cycler::GetAttr(Runtime&, std::string_view name) {
  std::optional<Value> found;
  if (name == "current") found = items_[at_];
  if (name == "next" || name == "reset") {
    found = Value::MakeObject(std::make_shared<CyclerMethod>(shared_from_this(), name == "reset"));
  }
  return found;
}

// Empty at the first call, the separator at the others.
class Joiner final : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}

  std::string_view type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  int depth() const override { return separator_.depth() + 1; }
  Result<Value> Call(Runtime&, const CallArgs&) override {
    return std::exchange(is_used_, true) ? separator_ : Value::MakeString("");
  }

 private:
  Value separator_;
  bool is_used_ = false;
};

Result<Value> Range(Interpreter& in, const Args& args) {
  int64_t bounds[] = {0, 0, 1};
  KVERN_ASSIGN_OR_RETURN(bounds[1], ToIndex(args[0], "range() argument"));
  if (args.has(1)) {
    bounds[0] = bounds[1];
    KVERN_ASSIGN_OR_RETURN(bounds[1], ToIndex(args[1], "range() argument"));
  }
  if (args.has(2)) {
    KVERN_ASSIGN_OR_RETURN(bounds[2], ToIndex(args[2], "range() argument"));
  }
  const auto [start, stop, step] = bounds;
  if (step == 0) return TemplateError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == kMaxRange) {
      return TemplateError("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange);
    }
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  KVERN_RETURN_IF_ERROR(in.runtime().Step(items.size()));
  KVERN_RETURN_IF_ERROR(in.runtime().Charge(items.size() * sizeof(Value)));
  return Value::MakeRange(std::move(items),
                          step == 1 ? fmt::format("range({}, {})", start, stop)
                                    : fmt::format("range({}, {}, {})", start, stop, step));
}

// dict(mapping or pairs, **named), also behind namespace().
Result<Dict> BuildDict(Interpreter& in, const CallArgs& args) {
  Dict dict;
  if (args.positional.size() > 1) return TypeError("dict expected at most 1 argument");
  if (!args.positional.empty() && args.positional[0].is_dict()) {
    dict = args.positional[0].dict();
  } else if (!args.positional.empty()) {
    KVERN_ASSIGN_OR_RETURN(const std::vector<Value> pairs,
                           Collect(in.runtime(), args.positional[0]));
    for (const Value& pair : pairs) {
      KVERN_ASSIGN_OR_RETURN(const std::vector<Value> parts, Collect(in.runtime(), pair));
      if (parts.size() != 2) return TemplateError("a dict is built from pairs");
      if (!Dict::IsHashable(parts[0])) {
        return TypeError("unhashable type: '{}'", parts[0].type_name());
      }
      dict.Set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : args.named) dict.Set(name, value);
  KVERN_RETURN_IF_ERROR(in.runtime().Step(dict.size()));
  return dict;
}

Result<Value> MakeDict(Interpreter& in, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(Dict dict, BuildDict(in, args.rest));
  return in.runtime().NewDict(std::move(dict));
}

Result<Value> MakeNamespace(Interpreter& in, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(Dict dict, BuildDict(in, args.rest));
  KVERN_RETURN_IF_ERROR(in.runtime().Charge(sizeof(NamespaceObject)));
  return in.NewNamespace(std::move(dict));
}

Result<Value> MakeCycler(Interpreter& in, const Args& args) {
  if (args.rest.positional.empty()) return TemplateError("at least one item has to be provided");
  auto cycler = std::make_shared<Cycler>(args.rest.positional);
  KVERN_RETURN_IF_ERROR(in.runtime().CheckDepth(cycler->depth()));
  return Value::MakeObject(std::move(cycler));
}

Result<Value> MakeJoiner(Interpreter& in, const Args& args) {
  auto joiner = std::make_shared<Joiner>(args.has(0) ? args[0] : Value::MakeString(", "));
  KVERN_RETURN_IF_ERROR(in.runtime().CheckDepth(joiner->depth()));
  return Value::MakeObject(std::move(joiner));
}

// The message is for the user, as the template's author wrote it.
Result<Value> RaiseException(Interpreter& in, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(std::string message, ToStr(in.runtime(), args[0]));
  return Error{ErrorCode::kInvalidArgument, std::move(message)};
}

Result<Value> StrftimeNow(Interpreter& in, const Args& args) {
  if (!args[0].is_string()) return TypeError("strftime_now() argument must be str");
  const LocalTime& now = in.runtime().now();
  std::tm time{};
  time.tm_year = now.year - 1900;
  time.tm_mon = now.month - 1;
  time.tm_mday = now.day;
  time.tm_hour = now.hour;
  time.tm_min = now.minute;
  time.tm_sec = now.second;
  timegm(&time);  // fills in the day of the week and of the year
  std::string format;
  for (size_t i = 0; i < args[0].str().size(); ++i) {
    const std::string& text = args[0].str();
    const char next = text[i] == '%' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == '%') {
      format += "%%";
    } else if (next == 'f') {
      format += "000000";
    } else if (next != 'z' && next != 'Z') {  // a time without a zone prints none
      format += text[i];
      continue;
    }
    ++i;
  }
  if (format.empty()) return Value::MakeString("");
  format += ' ';  // so that the result is never empty, which would look like a failure
  std::string out(format.size() * 16 + 256, '\0');
  const size_t length = std::strftime(out.data(), out.size(), format.c_str(), &time);
  if (length == 0) return TemplateError("strftime_now(): the format is too wide");
  out.resize(length - 1);
  return in.runtime().NewString(std::move(out));
}

const GlobalFunction kFunctions[] = {
    {"cycler", {{}, 0, true}, MakeCycler},
    {"dict", {{}, 0, true}, MakeDict},
    {"joiner", {{"sep"}, 0}, MakeJoiner},
    {"namespace", {{}, 0, true}, MakeNamespace},
    {"raise_exception", {{"message"}, 1}, RaiseException},
    {"range", {{"start", "stop", "step"}, 1}, Range},
    {"strftime_now", {{"format"}, 1}, StrftimeNow},
};

}  // namespace

Result<std::optional<Value>> NamespaceObject::GetAttr(Runtime&, std::string_view name) {
  const Value* const found = variables_.Find(name);
  return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
}

Result<std::string> NamespaceObject::Repr(Runtime& runtime) const {
  KVERN_ASSIGN_OR_RETURN(const std::string dict, ToRepr(runtime, Value::MakeDict(variables_)));
  return "<Namespace " + dict + ">";
}

Status NamespaceObject::Set(Runtime& runtime, const std::string& name, const Value& value) {
  KVERN_RETURN_IF_ERROR(runtime.CheckDepth(value.depth()));
  variables_.Set(name, value);
  return {};
}

std::vector<std::pair<std::string, Value>> MakeGlobals(Interpreter& in) {
  std::vector<std::pair<std::string, Value>> globals;
  for (const GlobalFunction& function : kFunctions) {
    globals.emplace_back(function.name,
                         Value::MakeObject(std::make_shared<FunctionObject>(in, function)));
  }
  return globals;
}

}  // namespace kvern::text::jinja
