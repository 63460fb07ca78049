#include "text/jinja/lazy_filters.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "text/jinja/filters.h"
#include "text/jinja/item_getter.h"
#include "text/jinja/tests.h"

namespace kvern::text::jinja {
namespace {

// Reads its input on demand. As in jinja2, a false input is empty and a bad one fails when read.
class LazyIterator : public Iterator {
 public:
  explicit LazyIterator(Value input) : Iterator(input.depth() + 1), input_(std::move(input)) {}

 protected:
  Result<std::optional<Value>> NextInput(Runtime& runtime) {
    KVERN_RETURN_IF_ERROR(runtime.Step());
    const Runtime::Level level(runtime);
    KVERN_RETURN_IF_ERROR(level.status());
    if (!source_) {
      if (!input_.IsTrue()) return std::optional<Value>();
      KVERN_ASSIGN_OR_RETURN(source_, Iterate(runtime, input_));
    }
    return source_->Next(runtime);
  }

 private:
  Value input_;
  std::shared_ptr<Iterator> source_;
};

class AttributeMap final : public LazyIterator {
 public:
  AttributeMap(Value input, ItemGetter getter)
      : LazyIterator(std::move(input)), getter_(std::move(getter)) {}

  Result<std::optional<Value>> Next(Runtime& runtime) override {
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
    if (!item) return item;
    KVERN_ASSIGN_OR_RETURN(item, getter_.Get(runtime, *std::move(item)));
    return item;
  }

 private:
  ItemGetter getter_;
};

class FilterMap final : public LazyIterator {
 public:
  FilterMap(Value input, std::string filter, CallArgs args)
      : LazyIterator(std::move(input)), filter_(std::move(filter)), args_(std::move(args)) {}

  Result<std::optional<Value>> Next(Runtime& runtime) override {
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
    if (!item) return item;
    KVERN_ASSIGN_OR_RETURN(item, CallFilter(runtime, filter_, *item, args_));
    return item;
  }

 private:
  std::string filter_;
  CallArgs args_;
};

class Selection final : public LazyIterator {
 public:
  struct Rule {
    ItemGetter getter;
    std::optional<std::string> test;  // the truth of the value without one
    CallArgs args;
    bool keeps = true;
  };
  Selection(Value input, Rule rule) : LazyIterator(std::move(input)), rule_(std::move(rule)) {}

  Result<std::optional<Value>> Next(Runtime& runtime) override {
    while (true) {
      KVERN_ASSIGN_OR_RETURN(std::optional<Value> item, NextInput(runtime));
      if (!item) return item;
      KVERN_ASSIGN_OR_RETURN(const Value subject, rule_.getter.Get(runtime, *item));
      bool holds = subject.IsTrue();
      if (rule_.test) {
        KVERN_ASSIGN_OR_RETURN(holds, CallTest(runtime, *rule_.test, subject, rule_.args));
      }
      if (holds == rule_.keeps) return item;
    }
  }

 private:
  Rule rule_;
};

Result<Value> Select(Runtime& runtime, const Value& input, const Args& args, bool has_attribute,
                     bool keeps) {
  std::vector<Value> positional = args.rest.positional;
  Value attribute = Value::None();
  if (has_attribute) {
    if (positional.empty()) return TemplateError("Missing parameter for attribute name");
    attribute = positional.front();
    positional.erase(positional.begin());
  }
  std::optional<std::string> test;
  if (!positional.empty()) {
    if (!positional.front().is_string()) return TypeError("the test's name must be a string");
    test = positional.front().str();
    positional.erase(positional.begin());
  }
  Selection::Rule rule{
      ItemGetter(attribute), test, {std::move(positional), args.rest.named}, keeps};
  return runtime.NewIterator(std::make_shared<Selection>(input, std::move(rule)));
}

std::optional<Value> TakeNamed(CallArgs& args, std::string_view name) {
  for (auto named = args.named.begin(); named != args.named.end(); ++named) {
    if (named->first != name) continue;
    std::optional<Value> value = named->second;
    args.named.erase(named);
    return value;
  }
  return std::nullopt;
}

}  // namespace

Result<Value> MapFilter(Runtime& runtime, const Value& input, const Args& args) {
  CallArgs rest = args.rest;
  if (rest.positional.empty()) {
    const std::optional<Value> attribute = TakeNamed(rest, "attribute");
    if (!attribute) return TemplateError("map requires a filter argument");
    std::optional<Value> fallback = TakeNamed(rest, "default");
    if (fallback && fallback->is_none()) fallback.reset();
    if (!rest.named.empty()) {
      return TemplateError("Unexpected keyword argument '{}'", rest.named.front().first);
    }
    ItemGetter getter(*attribute, false, std::move(fallback));
    return runtime.NewIterator(std::make_shared<AttributeMap>(input, std::move(getter)));
  }
  if (!rest.positional.front().is_string()) return TypeError("the filter's name must be a string");
  std::string filter = rest.positional.front().str();
  rest.positional.erase(rest.positional.begin());
  return runtime.NewIterator(
      std::make_shared<FilterMap>(input, std::move(filter), std::move(rest)));
}

Result<Value> SelectFilter(Runtime& runtime, const Value& input, const Args& args) {
  return Select(runtime, input, args, false, true);
}
Result<Value> RejectFilter(Runtime& runtime, const Value& input, const Args& args) {
  return Select(runtime, input, args, false, false);
}
Result<Value> SelectAttrFilter(Runtime& runtime, const Value& input, const Args& args) {
  return Select(runtime, input, args, true, true);
}
Result<Value> RejectAttrFilter(Runtime& runtime, const Value& input, const Args& args) {
  return Select(runtime, input, args, true, false);
}

}  // namespace kvern::text::jinja
