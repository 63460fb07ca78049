#include "text/jinja/runtime.h"

#include <utility>

#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

class ItemIterator final : public Iterator {
 public:
  explicit ItemIterator(Value list) : Iterator(list.depth() + 1), list_(std::move(list)) {}
  Result<std::optional<Value>> Next(Runtime&) override {
    if (next_ >= list_.items().size()) return std::optional<Value>();
    return std::optional<Value>(list_.items()[next_++]);
  }

 private:
  Value list_;
  size_t next_ = 0;
};

class KeyIterator final : public Iterator {
 public:
  explicit KeyIterator(Value dict) : Iterator(dict.depth() + 1), dict_(std::move(dict)) {}
  Result<std::optional<Value>> Next(Runtime&) override {
    if (next_ >= dict_.dict().size()) return std::optional<Value>();
    return std::optional<Value>(dict_.dict().entries()[next_++].first);
  }

 private:
  Value dict_;
  size_t next_ = 0;
};

class CharIterator final : public Iterator {
 public:
  explicit CharIterator(const Value& string)
      : Iterator(1), text_(Decode(string.str())), is_safe_(string.is_safe_string()) {}
  Result<std::optional<Value>> Next(Runtime&) override {
    if (next_ >= text_.size()) return std::optional<Value>();
    std::string character;
    AppendUtf8(text_[next_++], character);
    return std::optional<Value>(Value::MakeString(std::move(character), is_safe_));
  }

 private:
  std::u32string text_;
  bool is_safe_;
  size_t next_ = 0;
};

}  // namespace

Status Runtime::Step(uint64_t count) {
  steps_ += count;
  if (steps_ <= limits_.steps) return {};
  return Errorf(ErrorCode::kOutOfMemory, "more than {} steps: the template loops too long",
                limits_.steps);
}

Status Runtime::Charge(size_t bytes) {
  if (bytes > limits_.allocated_bytes - allocated_bytes_) {
    return Errorf(ErrorCode::kOutOfMemory, "more than {} bytes of strings and lists",
                  limits_.allocated_bytes);
  }
  allocated_bytes_ += bytes;
  return {};
}

Status Runtime::CheckDepth(int depth) const {
  if (depth <= limits_.depth) return {};
  return Errorf(ErrorCode::kOutOfMemory, "nested deeper than {} levels", limits_.depth);
}

Result<Value> Runtime::NewString(std::string bytes, bool is_safe) {
  KVERN_RETURN_IF_ERROR(Charge(bytes.size()));
  return Value::MakeString(std::move(bytes), is_safe);
}

Result<Value> Runtime::NewList(std::vector<Value> items, List::Flavor flavor) {
  KVERN_RETURN_IF_ERROR(Charge(items.size() * sizeof(Value)));
  Value list = Value::MakeList(std::move(items), flavor);
  KVERN_RETURN_IF_ERROR(CheckDepth(list.depth()));
  return list;
}

Result<Value> Runtime::NewDict(Dict dict) {
  KVERN_RETURN_IF_ERROR(Charge(dict.size() * sizeof(Dict::Entry)));
  KVERN_RETURN_IF_ERROR(CheckDepth(dict.depth()));
  return Value::MakeDict(std::move(dict));
}

Result<Value> Runtime::NewIterator(std::shared_ptr<Iterator> iterator) {
  KVERN_RETURN_IF_ERROR(CheckDepth(iterator->depth()));
  return Value::MakeIterator(std::move(iterator));
}

Result<Value> Object::Call(Runtime&, const CallArgs&) {
  return TypeError("'{}' object is not callable", type_name());
}

Result<std::optional<Value>> Object::GetAttr(Runtime&, std::string_view) {
  return std::optional<Value>();
}

Result<std::string> Object::Repr(Runtime&) const { return fmt::format("<{}>", type_name()); }

Result<std::shared_ptr<Iterator>> Iterate(Runtime& runtime, const Value& value) {
  using IteratorPtr = std::shared_ptr<Iterator>;
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return IteratorPtr(std::make_shared<ItemIterator>(Value::MakeList({})));
    case Value::Kind::kString:
      KVERN_RETURN_IF_ERROR(runtime.Charge(value.str().size() * sizeof(char32_t)));
      return IteratorPtr(std::make_shared<CharIterator>(value));
    case Value::Kind::kList:
      return IteratorPtr(std::make_shared<ItemIterator>(value));
    case Value::Kind::kDict:
      return IteratorPtr(std::make_shared<KeyIterator>(value));
    case Value::Kind::kIterator:
      return value.shared_iterator();
    default:
      return TypeError("'{}' object is not iterable", value.type_name());
  }
}

Result<std::vector<Value>> Collect(Runtime& runtime, const Value& value) {
  KVERN_ASSIGN_OR_RETURN(const std::shared_ptr<Iterator> iterator, Iterate(runtime, value));
  std::vector<Value> items;
  while (true) {
    KVERN_RETURN_IF_ERROR(runtime.Step());
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> item, iterator->Next(runtime));
    if (!item) return items;
    KVERN_RETURN_IF_ERROR(runtime.Charge(sizeof(Value)));
    items.push_back(*std::move(item));
  }
}

}  // namespace kvern::text::jinja
