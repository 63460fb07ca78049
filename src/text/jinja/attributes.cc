#include "text/jinja/attributes.h"

#include <algorithm>

#include "text/jinja/convert.h"
#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"

namespace kvern::text::jinja {
namespace {

// x[key] where the type has it; nothing when the key is absent or of the wrong type.
std::optional<Value> FindElement(const Value& object, const Value& key) {
  if (object.is_dict()) {
    if (!Dict::IsHashable(key)) return std::nullopt;
    const Value* const found = object.dict().Find(key);
    return found != nullptr ? std::optional<Value>(*found) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  const bool is_sequence = object.is_list() && object.list().is_indexable();
  if (!is_sequence && !object.is_string()) return std::nullopt;
  const auto size =
      static_cast<int64_t>(is_sequence ? object.items().size() : CountCodePoints(object.str()));
  const int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
  if (index < 0 || index >= size) return std::nullopt;
  if (is_sequence) return object.items()[static_cast<size_t>(index)];
  if (IsAscii(object.str())) {
    return Value::MakeString(object.str().substr(static_cast<size_t>(index), 1),
                             object.is_safe_string());
  }
  std::string character;
  AppendUtf8(Decode(object.str())[static_cast<size_t>(index)], character);
  return Value::MakeString(std::move(character), object.is_safe_string());
}

Value Missing(const Value& object, std::string_view name) {
  return Value::MakeUndefined(
      fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

// One bound of a slice, moved into the sequence as Python's slice.indices does.
Result<int64_t> ClampBound(const Value& bound, int64_t size, int64_t step, int64_t missing) {
  if (bound.is_none()) return missing;
  KVERN_ASSIGN_OR_RETURN(int64_t index, ToIndex(bound, "slice indices"));
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? size - 1 : size;
  if (index < 0) index = index < -size ? lowest : std::max(index + size, lowest);
  return std::min(index, highest);
}

struct Indices {
  int64_t start;
  int64_t step;
  size_t count;
};

Result<Indices> ResolveSlice(const SliceBounds& bounds, size_t sequence_size) {
  const auto size = static_cast<int64_t>(sequence_size);
  int64_t step = 1;
  if (!bounds.step.is_none()) {
    KVERN_ASSIGN_OR_RETURN(step, ToIndex(bounds.step, "slice indices"));
    if (step == 0) return TemplateError("slice step cannot be zero");
    // Longer steps select the same single element, and cannot overflow.
    step = std::clamp(step, -size - 1, size + 1);
  }
  KVERN_ASSIGN_OR_RETURN(const int64_t start,
                         ClampBound(bounds.start, size, step, step < 0 ? size - 1 : 0));
  KVERN_ASSIGN_OR_RETURN(const int64_t stop,
                         ClampBound(bounds.stop, size, step, step < 0 ? -1 : size));
  const int64_t span = step > 0 ? stop - start : start - stop;
  const int64_t stride = step > 0 ? step : -step;
  return Indices{start, step, span <= 0 ? 0 : static_cast<size_t>((span + stride - 1) / stride)};
}

template <typename Sequence>
Sequence Pick(const Sequence& from, const Indices& indices) {
  Sequence out;
  out.reserve(indices.count);
  for (size_t i = 0; i < indices.count; ++i) {
    out.push_back(
        from[static_cast<size_t>(indices.start + static_cast<int64_t>(i) * indices.step)]);
  }
  return out;
}

}  // namespace

Result<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& object,
                                           std::string_view name) {
  if (object.is_object()) return object.object()->GetAttr(runtime, name);
  if (object.is_list() && object.list().flavor == List::Flavor::kGroup) {
    if (name == "grouper") return std::optional<Value>(object.items()[0]);
    if (name == "list") return std::optional<Value>(object.items()[1]);
  }
  if (IsMutatingMethod(object, name)) {
    return std::optional<Value>(
        Value::MakeUndefined(fmt::format("access to attribute '{}' of '{}' object is unsafe: "
                                         "templates cannot change lists and dicts",
                                         name, object.type_name()),
                             true));
  }
  return BindMethod(object, name);
}

Result<Value> GetAttr(Runtime& runtime, const Value& object, std::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  KVERN_ASSIGN_OR_RETURN(std::optional<Value> attribute, FindAttribute(runtime, object, name));
  if (attribute) return *std::move(attribute);
  if (object.is_dict()) {
    const Value* const found = object.dict().Find(name);
    if (found != nullptr) return *found;
  }
  return Missing(object, name);
}

Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return UndefinedError(object);
  if (auto element = FindElement(object, key)) return *std::move(element);
  if (key.is_string()) {
    KVERN_ASSIGN_OR_RETURN(std::optional<Value> attribute,
                           FindAttribute(runtime, object, key.str()));
    if (attribute) return *std::move(attribute);
    return Missing(object, key.str());
  }
  KVERN_ASSIGN_OR_RETURN(const std::string name, ToRepr(runtime, key));
  return Value::MakeUndefined(fmt::format("{} object has no element {}", object.type_name(), name));
}

Result<Value> GetSlice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.is_string()) {
    if (IsAscii(object.str())) {
      KVERN_ASSIGN_OR_RETURN(const Indices indices, ResolveSlice(bounds, object.str().size()));
      return runtime.NewString(Pick(object.str(), indices), object.is_safe_string());
    }
    const std::u32string text = Decode(object.str());
    KVERN_ASSIGN_OR_RETURN(const Indices indices, ResolveSlice(bounds, text.size()));
    return runtime.NewString(Encode(Pick(text, indices)), object.is_safe_string());
  }
  if (object.is_list() && object.list().flavor == List::Flavor::kRange) {
    return Errorf(ErrorCode::kUnsupported, "slices of a range are not supported");
  }
  if (object.is_list() && object.list().is_indexable()) {
    KVERN_ASSIGN_OR_RETURN(const Indices indices, ResolveSlice(bounds, object.items().size()));
    KVERN_RETURN_IF_ERROR(runtime.Step(indices.count));
    return runtime.NewList(Pick(object.items(), indices), object.list().flavor);
  }
  return TypeError("'{}' object cannot be sliced", object.type_name());
}

}  // namespace kvern::text::jinja
