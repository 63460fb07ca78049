#include <algorithm>
#include <memory>

#include "text/jinja/convert.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"

namespace kvern::text::jinja {
namespace {

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Method& method) : self_(std::move(self)), method_(method) {}

  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  int depth() const override { return self_.depth() + 1; }

  Result<Value> Call(Runtime& runtime, const CallArgs& args) override {
    KVERN_ASSIGN_OR_RETURN(const Args bound, Bind(method_.name, method_.signature, args));
    return method_.run(runtime, self_, bound);
  }
  Result<std::string> Repr(Runtime&) const override {
    return fmt::format("<built-in method {} of {} object>", method_.name, self_.type_name());
  }

 private:
  Value self_;
  const Method& method_;
};

Result<Value> Keys(Runtime& runtime, const Value& self, const Args&) {
  KVERN_RETURN_IF_ERROR(runtime.Step(self.dict().size()));
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict().entries()) keys.push_back(key);
  return runtime.NewList(std::move(keys), List::Flavor::kKeys);
}

Result<Value> Values(Runtime& runtime, const Value& self, const Args&) {
  KVERN_RETURN_IF_ERROR(runtime.Step(self.dict().size()));
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().entries()) values.push_back(value);
  return runtime.NewList(std::move(values), List::Flavor::kValues);
}

Result<Value> DictItems(Runtime& runtime, const Value& self, const Args&) {
  KVERN_RETURN_IF_ERROR(runtime.Step(self.dict().size()));
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries())
    items.push_back(Value::Tuple({key, value}));
  return runtime.NewList(std::move(items), List::Flavor::kItems);
}

Result<Value> Get(Runtime&, const Value& self, const Args& args) {
  if (!Dict::IsHashable(args[0])) return TypeError("unhashable type: '{}'", args[0].type_name());
  const Value* const found = self.dict().Find(args[0]);
  if (found != nullptr) return *found;
  return args.has(1) ? args[1] : Value::None();
}

Result<Value> Copy(Runtime&, const Value& self, const Args&) { return self; }

Result<Value> CountItem(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_RETURN_IF_ERROR(runtime.Step(self.items().size()));
  return Value::Int(std::count_if(self.items().begin(), self.items().end(),
                                  [&args](const Value& item) { return Equals(item, args[0]); }));
}

Result<Value> IndexOfItem(Runtime& runtime, const Value& self, const Args& args) {
  KVERN_RETURN_IF_ERROR(runtime.Step(self.items().size()));
  const auto size = static_cast<int64_t>(self.items().size());
  int64_t start = 0;
  int64_t stop = size;
  if (args.has(1)) {
    KVERN_ASSIGN_OR_RETURN(start, ToIndex(args[1], "slice indices"));
  }
  if (args.has(2)) {
    KVERN_ASSIGN_OR_RETURN(stop, ToIndex(args[2], "slice indices"));
  }
  if (start < 0) start = std::max<int64_t>(start + size, 0);
  if (stop < 0) stop = std::max<int64_t>(stop + size, 0);
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    if (Equals(self.items()[static_cast<size_t>(i)], args[0])) return Value::Int(i);
  }
  return TemplateError("value is not in {}", self.type_name());
}

const Method kDictMethods[] = {
    {"copy", {}, Copy},       {"get", {{"key", "default"}, 1}, Get},
    {"items", {}, DictItems}, {"keys", {}, Keys},
    {"values", {}, Values},
};

const Method kListMethods[] = {
    {"copy", {}, Copy},
    {"count", {{"value"}, 1}, CountItem},
    {"index", {{"value", "start", "stop"}, 1}, IndexOfItem},
};

constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};

std::span<const Method> MethodsOf(const Value& self) {
  if (self.is_string()) return StringMethods();
  if (self.is_dict()) return DictMethods();
  if (self.is_list() && self.list().is_indexable()) return ListMethods();
  return {};
}

}  // namespace

std::span<const Method> DictMethods() { return kDictMethods; }
std::span<const Method> ListMethods() { return kListMethods; }

std::optional<Value> BindMethod(const Value& self, std::string_view name) {
  for (const Method& method : MethodsOf(self)) {
    const bool is_of_list_alone = self.is_list() && name == "copy";
    if (is_of_list_alone && self.list().flavor != List::Flavor::kList) continue;
    if (method.name == name) return Value::MakeObject(std::make_shared<BoundMethod>(self, method));
  }
  return std::nullopt;
}

bool IsMutatingMethod(const Value& self, std::string_view name) {
  const auto has = [name](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (self.is_dict()) return has(kDictMutators);
  return self.is_list() && self.list().flavor == List::Flavor::kList && has(kListMutators);
}

}  // namespace kvern::text::jinja
