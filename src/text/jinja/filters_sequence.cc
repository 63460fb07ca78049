#include <algorithm>
#include <string>

#include "text/jinja/attributes.h"
#include "text/jinja/convert.h"
#include "text/jinja/filters.h"
#include "text/jinja/item_getter.h"
#include "text/jinja/lazy_filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/text_algorithms.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

Value Argument(const Args& args, size_t i, Value fallback) {
  return args.has(i) ? args[i] : std::move(fallback);
}

Result<Value> Default(Runtime&, const Value& input, const Args& args) {
  const bool replaces = input.is_undefined() || (args.IsTrue(1) && !input.IsTrue());
  return replaces ? Argument(args, 0, Value::MakeString("")) : input;
}

Result<Value> Attr(Runtime& runtime, const Value& input, const Args& args) {
  if (input.is_undefined()) return UndefinedError(input);
  KVERN_ASSIGN_OR_RETURN(const std::string name, ToStr(runtime, args[0]));
  KVERN_ASSIGN_OR_RETURN(std::optional<Value> found, FindAttribute(runtime, input, name));
  if (found) return *std::move(found);
  return Value::MakeUndefined(
      fmt::format("'{} object' has no attribute '{}'", input.type_name(), name));
}

Result<Value> Length(Runtime&, const Value& input, const Args&) {
  switch (input.kind()) {
    case Value::Kind::kUndefined:
      return Value::Int(0);
    case Value::Kind::kString:
      return Value::Int(static_cast<int64_t>(CountCodePoints(input.str())));
    case Value::Kind::kList:
      return Value::Int(static_cast<int64_t>(input.items().size()));
    case Value::Kind::kDict:
      return Value::Int(static_cast<int64_t>(input.dict().size()));
    default:
      return TypeError("object of type '{}' has no len()", input.type_name());
  }
}

Result<Value> ToList(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(runtime, input));
  return Value::MakeList(std::move(items));
}

Result<Value> First(Runtime& runtime, const Value& input, const Args&) {
  KVERN_ASSIGN_OR_RETURN(const auto iterator, Iterate(runtime, input));
  KVERN_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next(runtime));
  if (item) return *std::move(item);
  return Value::MakeUndefined("No first item, sequence was empty.");
}

Result<Value> Last(Runtime& runtime, const Value& input, const Args&) {
  if (input.is_iterator()) return TypeError("'generator' object is not reversible");
  KVERN_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(runtime, input));
  if (!items.empty()) return std::move(items.back());
  return Value::MakeUndefined("No last item, sequence was empty.");
}

Result<Value> AsIterator(Runtime& runtime, std::vector<Value> items) {
  KVERN_ASSIGN_OR_RETURN(const Value list, runtime.NewList(std::move(items)));
  KVERN_ASSIGN_OR_RETURN(std::shared_ptr<Iterator> iterator, Iterate(runtime, list));
  return runtime.NewIterator(std::move(iterator));
}

Result<Value> Reverse(Runtime& runtime, const Value& input, const Args&) {
  if (input.is_string()) {
    std::u32string text = Decode(input.str());
    std::reverse(text.begin(), text.end());
    return runtime.NewString(Encode(text), input.is_safe_string());
  }
  KVERN_ASSIGN_OR_RETURN(std::vector<Value> items, Collect(runtime, input));
  std::reverse(items.begin(), items.end());
  if (input.is_iterator()) return runtime.NewList(std::move(items));
  return AsIterator(runtime, std::move(items));
}

Result<Value> Items(Runtime& runtime, const Value& input, const Args&) {
  std::vector<Value> items;
  if (input.is_dict()) {
    KVERN_RETURN_IF_ERROR(runtime.Step(input.dict().size()));
    for (const auto& [key, value] : input.dict().entries()) {
      items.push_back(Value::Tuple({key, value}));
    }
  } else if (!input.is_undefined()) {
    return TypeError("Can only get item pairs from a mapping.");
  }
  return AsIterator(runtime, std::move(items));
}

Result<Value> Join(Runtime& runtime, const Value& input, const Args& args) {
  std::string separator;
  if (args.has(0)) {
    KVERN_ASSIGN_OR_RETURN(separator, ToStr(runtime, args[0]));
  }
  const ItemGetter getter(Argument(args, 1, Value::None()));
  KVERN_ASSIGN_OR_RETURN(const auto iterator, Iterate(runtime, input));
  std::string out;
  for (bool is_first = true;; is_first = false) {
    KVERN_RETURN_IF_ERROR(runtime.Step());
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> next, iterator->Next(runtime));
    if (!next) return Value::MakeString(std::move(out));
    KVERN_ASSIGN_OR_RETURN(const Value item, getter.Get(runtime, *std::move(next)));
    KVERN_ASSIGN_OR_RETURN(const std::string text, ToStr(runtime, item));
    KVERN_RETURN_IF_ERROR(runtime.Charge(separator.size() + text.size()));
    if (!is_first) out += separator;
    out += text;
  }
}

Result<std::vector<Keyed>> KeyedItems(Runtime& runtime, const Value& input,
                                      const ItemGetter& getter) {
  KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(runtime, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    KVERN_ASSIGN_OR_RETURN(Value key, getter.Get(runtime, item));
    keyed.push_back(Keyed{std::move(key), item});
  }
  return keyed;
}

Result<Value> ItemsOf(Runtime& runtime, const std::vector<Keyed>& keyed) {
  std::vector<Value> items;
  for (const Keyed& entry : keyed) items.push_back(entry.item);
  return runtime.NewList(std::move(items));
}

Result<Value> Sort(Runtime& runtime, const Value& input, const Args& args) {
  const bool ignores_case = !args.IsTrue(1);
  const Value attribute = Argument(args, 2, Value::None());
  KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(runtime, input));
  std::vector<ItemGetter> getters;
  if (attribute.is_string()) {
    for (const std::string& part : SplitOn(attribute.str(), ",", -1, false)) {
      getters.emplace_back(Value::MakeString(part), ignores_case);
    }
  } else {
    getters.emplace_back(attribute, ignores_case);
  }
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    std::vector<Value> keys;
    for (const ItemGetter& getter : getters) {
      KVERN_ASSIGN_OR_RETURN(Value key, getter.Get(runtime, item));
      keys.push_back(std::move(key));
    }
    KVERN_ASSIGN_OR_RETURN(Value key, runtime.NewList(std::move(keys)));
    keyed.push_back(Keyed{std::move(key), item});
  }
  KVERN_RETURN_IF_ERROR(SortByKey(runtime, keyed, args.IsTrue(0)));
  return ItemsOf(runtime, keyed);
}

Result<Value> DictSort(Runtime& runtime, const Value& input, const Args& args) {
  if (input.is_undefined()) return UndefinedError(input);
  if (!input.is_dict()) return TypeError("'{}' object has no items to sort", input.type_name());
  const std::string by = args.has(1) && args[1].is_string() ? args[1].str() : "key";
  if (by != "key" && by != "value") {
    return TemplateError("You can only sort by either \"key\" or \"value\"");
  }
  const ItemGetter getter(Value::None(), !args.IsTrue(0));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : input.dict().entries()) {
    KVERN_ASSIGN_OR_RETURN(Value sort_key, getter.Get(runtime, by == "key" ? key : value));
    keyed.push_back(Keyed{std::move(sort_key), Value::Tuple({key, value})});
  }
  KVERN_RETURN_IF_ERROR(SortByKey(runtime, keyed, args.IsTrue(2)));
  return ItemsOf(runtime, keyed);
}

Result<Value> GroupBy(Runtime& runtime, const Value& input, const Args& args) {
  const bool ignores_case = !args.IsTrue(2);
  std::optional<Value> fallback;
  if (args.has_value(1)) fallback = args[1];
  const ItemGetter getter(args[0], ignores_case, fallback);
  KVERN_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, KeyedItems(runtime, input, getter));
  KVERN_RETURN_IF_ERROR(SortByKey(runtime, keyed, false));
  const ItemGetter exact(args[0], false, fallback);
  std::vector<Value> groups;
  for (size_t start = 0; start < keyed.size();) {
    size_t end = start;
    std::vector<Value> members;
    while (end < keyed.size() && Equals(keyed[end].key, keyed[start].key)) {
      members.push_back(keyed[end++].item);
    }
    KVERN_ASSIGN_OR_RETURN(const Value name, exact.Get(runtime, members.front()));
    KVERN_ASSIGN_OR_RETURN(const Value list, runtime.NewList(std::move(members)));
    KVERN_ASSIGN_OR_RETURN(Value group, runtime.NewList({name, list}, List::Flavor::kGroup));
    groups.push_back(std::move(group));
    start = end;
  }
  return runtime.NewList(std::move(groups));
}

Result<Value> Unique(Runtime& runtime, const Value& input, const Args& args) {
  const ItemGetter getter(Argument(args, 1, Value::None()), !args.IsTrue(0));
  KVERN_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(runtime, input, getter));
  Dict seen;
  std::vector<Value> items;
  for (const Keyed& entry : keyed) {
    if (!Dict::IsHashable(entry.key)) {
      return TypeError("unhashable type: '{}'", entry.key.type_name());
    }
    if (seen.Find(entry.key) != nullptr) continue;
    seen.Set(entry.key, Value::None());
    items.push_back(entry.item);
  }
  return AsIterator(runtime, std::move(items));
}

template <bool kMax>
Result<Value> Extreme(Runtime& runtime, const Value& input, const Args& args) {
  const ItemGetter getter(Argument(args, 1, Value::None()), !args.IsTrue(0));
  KVERN_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(runtime, input, getter));
  if (keyed.empty()) return Value::MakeUndefined("No aggregated item, sequence was empty.");
  const Keyed* best = &keyed.front();
  for (size_t i = 1; i < keyed.size(); ++i) {
    const Keyed& entry = keyed[i];
    KVERN_ASSIGN_OR_RETURN(const bool better, kMax ? Less(runtime, best->key, entry.key)
                                                   : Less(runtime, entry.key, best->key));
    if (better) best = &entry;
  }
  return best->item;
}

Result<Value> Sum(Runtime& runtime, const Value& input, const Args& args) {
  const ItemGetter getter(Argument(args, 0, Value::None()));
  Value total = Argument(args, 1, Value::Int(0));
  if (total.is_string()) return TypeError("sum() can't sum strings [use ''.join(seq) instead]");
  KVERN_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, KeyedItems(runtime, input, getter));
  for (const Keyed& entry : keyed) {
    KVERN_ASSIGN_OR_RETURN(total, Apply(runtime, BinaryOp::kAdd, total, entry.key));
  }
  return total;
}

Result<Value> Batch(Runtime& runtime, const Value& input, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const int64_t size, ToIndex(args[0], "linecount"));
  KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(runtime, input));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0 && static_cast<int64_t>(batch.size()) == size) {
      batches.push_back(Value::MakeList(std::move(batch)));
      batch.clear();
    }
    batch.push_back(items[i]);
  }
  if (!batch.empty()) {
    const auto missing = size - static_cast<int64_t>(batch.size());
    if (args.has_value(1) && missing > 0) {
      KVERN_RETURN_IF_ERROR(runtime.Step(static_cast<uint64_t>(missing)));
      KVERN_RETURN_IF_ERROR(runtime.Charge(static_cast<size_t>(missing) * sizeof(Value)));
      batch.insert(batch.end(), static_cast<size_t>(missing), args[1]);
    }
    batches.push_back(Value::MakeList(std::move(batch)));
  }
  return AsIterator(runtime, std::move(batches));
}

Result<Value> Slice(Runtime& runtime, const Value& input, const Args& args) {
  KVERN_ASSIGN_OR_RETURN(const int64_t count, ToIndex(args[0], "slices"));
  KVERN_ASSIGN_OR_RETURN(const std::vector<Value> items, Collect(runtime, input));
  if (count == 0) return TemplateError("integer division or modulo by zero");
  KVERN_RETURN_IF_ERROR(runtime.Step(static_cast<uint64_t>(std::max<int64_t>(count, 0))));
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> slices;
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t start = offset + i * (size / count);
    if (i < size % count) ++offset;
    const int64_t end = offset + (i + 1) * (size / count);
    std::vector<Value> slice(items.begin() + start, items.begin() + end);
    if (args.has_value(1) && i >= size % count) slice.push_back(args[1]);
    slices.push_back(Value::MakeList(std::move(slice)));
  }
  return AsIterator(runtime, std::move(slices));
}

const Filter kSequenceFilters[] = {
    {"attr", {{"name"}, 1}, Attr},
    {"batch", {{"linecount", "fill_with"}, 1}, Batch},
    {"count", {}, Length},
    {"d", {{"default_value", "boolean"}, 0}, Default},
    {"default", {{"default_value", "boolean"}, 0}, Default},
    {"dictsort", {{"case_sensitive", "by", "reverse"}, 0}, DictSort},
    {"first", {}, First},
    {"groupby", {{"attribute", "default", "case_sensitive"}, 1}, GroupBy},
    {"items", {}, Items},
    {"join", {{"d", "attribute"}, 0}, Join},
    {"last", {}, Last},
    {"length", {}, Length},
    {"list", {}, ToList},
    {"map", {{}, 0, true}, MapFilter},
    {"max", {{"case_sensitive", "attribute"}, 0}, Extreme<true>},
    {"min", {{"case_sensitive", "attribute"}, 0}, Extreme<false>},
    {"reject", {{}, 0, true}, RejectFilter},
    {"rejectattr", {{}, 0, true}, RejectAttrFilter},
    {"reverse", {}, Reverse},
    {"select", {{}, 0, true}, SelectFilter},
    {"selectattr", {{}, 0, true}, SelectAttrFilter},
    {"slice", {{"slices", "fill_with"}, 1}, Slice},
    {"sort", {{"reverse", "case_sensitive", "attribute"}, 0}, Sort},
    {"sum", {{"attribute", "start"}, 0}, Sum},
    {"unique", {{"case_sensitive", "attribute"}, 0}, Unique},
};

}  // namespace

std::span<const Filter> SequenceFilters() { return kSequenceFilters; }

}  // namespace kvern::text::jinja
