#include "model/gguf_metadata.h"

#include <fmt/core.h>

#include <array>
#include <cstring>

#include "base/check.h"

namespace kvern::model {
namespace {

struct KindRow {
  MetadataKind kind;
  std::string_view name;
  std::optional<size_t> bytes;
};

constexpr std::array<KindRow, 13> kKinds = {{
    {MetadataKind::kUint8, "uint8", 1},
    {MetadataKind::kInt8, "int8", 1},
    {MetadataKind::kUint16, "uint16", 2},
    {MetadataKind::kInt16, "int16", 2},
    {MetadataKind::kUint32, "uint32", 4},
    {MetadataKind::kInt32, "int32", 4},
    {MetadataKind::kFloat32, "float32", 4},
    {MetadataKind::kBool, "bool", 1},
    {MetadataKind::kString, "string", std::nullopt},
    {MetadataKind::kArray, "array", std::nullopt},
    {MetadataKind::kUint64, "uint64", 8},
    {MetadataKind::kInt64, "int64", 8},
    {MetadataKind::kFloat64, "float64", 8},
}};

const KindRow* FindKind(MetadataKind kind) {
  const auto number = static_cast<size_t>(kind);
  return number < kKinds.size() ? &kKinds[number] : nullptr;
}

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

}  // namespace

std::optional<std::string_view> MetadataKindName(MetadataKind kind) {
  const KindRow* row = FindKind(kind);
  if (row == nullptr) return std::nullopt;
  return row->name;
}

std::optional<size_t> MetadataKindBytes(MetadataKind kind) {
  const KindRow* row = FindKind(kind);
  return row == nullptr ? std::nullopt : row->bytes;
}

MetadataValue DecodeFixedSize(MetadataKind kind, const std::byte* bytes) {
  switch (kind) {
    case MetadataKind::kUint8:
      return {kind, uint64_t{Load<uint8_t>(bytes)}};
    case MetadataKind::kInt8:
      return {kind, int64_t{Load<int8_t>(bytes)}};
    case MetadataKind::kUint16:
      return {kind, uint64_t{Load<uint16_t>(bytes)}};
    case MetadataKind::kInt16:
      return {kind, int64_t{Load<int16_t>(bytes)}};
    case MetadataKind::kUint32:
      return {kind, uint64_t{Load<uint32_t>(bytes)}};
    case MetadataKind::kInt32:
      return {kind, int64_t{Load<int32_t>(bytes)}};
    case MetadataKind::kFloat32:
      return {kind, double{Load<float>(bytes)}};
    case MetadataKind::kBool:
      return {kind, Load<uint8_t>(bytes) != 0};
    case MetadataKind::kUint64:
      return {kind, Load<uint64_t>(bytes)};
    case MetadataKind::kInt64:
      return {kind, Load<int64_t>(bytes)};
    case MetadataKind::kFloat64:
      return {kind, Load<double>(bytes)};
    case MetadataKind::kString:
    case MetadataKind::kArray:
      break;
  }
  CheckFailed(__FILE__, __LINE__, "kind of fixed size");
}

MetadataValue MetadataArray::Reader::Next() {
  if (kind_ != MetadataKind::kString) {
    const MetadataValue element = DecodeFixedSize(kind_, next_);
    next_ += *MetadataKindBytes(kind_);
    return element;
  }
  const auto length = static_cast<size_t>(Load<uint64_t>(next_));
  const std::string_view text(reinterpret_cast<const char*>(next_ + sizeof(uint64_t)), length);
  next_ += sizeof(uint64_t) + length;
  return {kind_, text};
}

std::string MetadataTypeName(const MetadataValue& value) {
  if (const auto* array = std::get_if<MetadataArray>(&value.value)) {
    return fmt::format("array of {}", *MetadataKindName(array->element_kind));
  }
  return std::string(*MetadataKindName(value.kind));
}

}  // namespace kvern::model
