#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/operators.h"

namespace kvern::text::jinja {
namespace {

constexpr size_t kIndexedFrom = 9;  // entries; fewer are found faster by looking at each

size_t Hash(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kString:
      return std::hash<std::string>{}(value.str());
    case Value::Kind::kBool:
    case Value::Kind::kInt:
    case Value::Kind::kFloat:
      return std::hash<double>{}(value.as_float());
    case Value::Kind::kList: {
      size_t hash = 17;
      for (const Value& item : value.items()) hash = hash * 31 + Hash(item);
      return hash;
    }
    default:
      return 0;
  }
}

int DepthOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

}  // namespace

Value::Value() : Value(MakeUndefined("value is undefined")) {}

Value Value::MakeUndefined(std::string message, bool is_security) {
  return Value(Data(std::make_shared<const Undefined>(Undefined{std::move(message), is_security})));
}
Value Value::None() { return Value(Data(nullptr)); }
Value Value::Bool(bool value) { return Value(Data(value)); }
Value Value::Int(int64_t value) { return Value(Data(value)); }
Value Value::Float(double value) { return Value(Data(value)); }
Value Value::MakeString(std::string bytes, bool is_safe) {
  return Value(Data(std::make_shared<const String>(String{std::move(bytes), is_safe})));
}
Value Value::MakeList(std::vector<Value> items, List::Flavor flavor) {
  const int depth = DepthOf(items);
  return Value(Data(std::make_shared<const List>(List{std::move(items), flavor, depth})));
}
Value Value::Tuple(std::vector<Value> items) {
  return MakeList(std::move(items), List::Flavor::kTuple);
}
Value Value::MakeRange(std::vector<Value> items, std::string repr) {
  return Value(Data(std::make_shared<const List>(
      List{std::move(items), List::Flavor::kRange, 1, std::move(repr)})));
}
Value Value::MakeDict(Dict dict) {
  return Value(Data(std::make_shared<const Dict>(std::move(dict))));
}
Value Value::MakeIterator(std::shared_ptr<Iterator> iterator) {
  return Value(Data(std::move(iterator)));
}
Value Value::MakeObject(std::shared_ptr<Object> object) { return Value(Data(std::move(object))); }

int64_t Value::as_int() const { return is_bool() ? int64_t{as_bool()} : std::get<3>(data_); }

double Value::as_float() const {
  return is_float() ? std::get<4>(data_) : static_cast<double>(as_int());
}

bool Value::IsTrue() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_float() != 0;
    case Kind::kString:
      return !str().empty();
    case Kind::kList:
      return !items().empty();
    case Kind::kDict:
      return dict().size() > 0;
    case Kind::kIterator:
    case Kind::kObject:
      return true;
  }
  return true;
}

int Value::depth() const {
  switch (kind()) {
    case Kind::kList:
      return list().depth;
    case Kind::kDict:
      return dict().depth();
    case Kind::kIterator:
      return iterator().depth();
    case Kind::kObject:
      return object()->depth();
    default:
      return 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return is_safe_string() ? "Markup" : "str";
    case Kind::kList: {
      constexpr std::string_view kNames[] = {"list",       "tuple", "dict_keys",  "dict_values",
                                             "dict_items", "range", "_GroupTuple"};
      return kNames[static_cast<size_t>(list().flavor)];
    }
    case Kind::kDict:
      return "dict";
    case Kind::kIterator:
      return "generator";
    case Kind::kObject:
      return object()->type_name();
  }
  return "object";
}

bool Value::IsSame(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return as_bool() == other.as_bool();
    case Kind::kInt:
      return as_int() == other.as_int();
    case Kind::kFloat:
      return as_float() == other.as_float();
    case Kind::kString:
      return &string() == &other.string() || str() == other.str();
    default:
      return data_ == other.data_;
  }
}

bool Dict::IsHashable(const Value& key) {
  if (key.is_dict()) return false;
  if (!key.is_list()) return true;
  if (!key.list().is_tuple()) return key.list().flavor == List::Flavor::kRange;
  return std::all_of(key.items().begin(), key.items().end(), IsHashable);
}

template <typename Matches>
std::optional<size_t> Dict::Locate(size_t hash, const Matches& matches) const {
  if (slots_.empty()) {
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (hashes_[i] == hash && matches(entries_[i].first)) return i;
    }
    return std::nullopt;
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const size_t entry = slots_[slot] - 1;
    if (hashes_[entry] == hash && matches(entries_[entry].first)) return entry;
  }
  return std::nullopt;
}

void Dict::Index(size_t entry, size_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = static_cast<uint32_t>(entry + 1);
}

void Dict::Set(const Value& key, Value value) {
  CHECK(IsHashable(key));
  const size_t hash = Hash(key);
  depth_ = std::max({depth_, value.depth() + 1, key.depth() + 1});
  const auto found = Locate(hash, [&key](const Value& other) { return Equals(key, other); });
  if (found) {
    entries_[*found].second = std::move(value);
    return;
  }
  entries_.emplace_back(key, std::move(value));
  hashes_.push_back(hash);
  if (entries_.size() < kIndexedFrom) return;
  if (entries_.size() * 2 > slots_.size()) {
    slots_.assign(std::max<size_t>(32, slots_.size() * 2), 0);
    for (size_t i = 0; i < entries_.size(); ++i) Index(i, hashes_[i]);
  } else {
    Index(entries_.size() - 1, hash);
  }
}

const Value* Dict::Find(const Value& key) const {
  const auto found = Locate(Hash(key), [&key](const Value& other) { return Equals(key, other); });
  return found ? &entries_[*found].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = Locate(std::hash<std::string_view>{}(key), [key](const Value& other) {
    return other.is_string() && other.str() == key;
  });
  return found ? &entries_[*found].second : nullptr;
}

}  // namespace kvern::text::jinja
