#include "model/gguf_describe.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace kvern::model {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxElements = 8;  // of an array that are shown
constexpr size_t kMaxTextBytes = 60;  // of a string that are shown as text
constexpr size_t kMaxNameWidth = 48;

struct TypeTotal {
  uint64_t num_tensors = 0;
  uint64_t num_elements = 0;
  uint64_t num_bytes = 0;
};

struct Totals {
  std::map<compute::QuantType, TypeTotal> by_type;
  TypeTotal all;  // of supported types only: the others' bytes are unknown
};

bool IsSupported(const TensorInfo& tensor) {
  return compute::FindQuantTraits(tensor.type) != nullptr;
}

std::string TypeName(compute::QuantType type) {
  const compute::QuantTraits* traits = compute::FindQuantTraits(type);
  if (traits != nullptr) return std::string(traits->name);
  return fmt::format("type {} (unsupported)", static_cast<uint32_t>(type));
}

void Count(const TensorInfo& tensor, TypeTotal& total) {
  ++total.num_tensors;
  total.num_elements += tensor.num_elements;
  total.num_bytes += tensor.data.size();
}

Totals Sum(const Gguf& gguf) {
  Totals totals;
  for (const TensorInfo& tensor : gguf.tensors()) {
    Count(tensor, totals.by_type[tensor.type]);
    if (IsSupported(tensor)) Count(tensor, totals.all);
  }
  return totals;
}

std::optional<double> BitsPerWeight(const TypeTotal& total) {
  if (total.num_elements == 0) return std::nullopt;
  return 8.0 * static_cast<double>(total.num_bytes) / static_cast<double>(total.num_elements);
}

// Length of the printable UTF-8 character at the start of `text`; 0 if there is none, that is for
// control characters and for bytes that are not UTF-8.
size_t PrintableLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return byte(0) >= 0x20 && byte(0) != 0x7F ? 1 : 0;
  const size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || length > text.size()) return 0;
  uint32_t code = byte(0) & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kLeast[] = {0xA0, 0x800, 0x10000};  // U+0080 … U+009F are controls
  if (code < kLeast[length - 2] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return 0;
  return length;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  size_t i = 0;
  while (i < std::min(text.size(), kMaxTextBytes)) {
    const size_t length = PrintableLength(text.substr(i));
    if (text[i] == '\n') {
      quoted += "\\n";
    } else if (length == 0) {
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
    } else {
      if (text[i] == '"' || text[i] == '\\') quoted += '\\';
      quoted += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  quoted += '"';
  if (i < text.size()) quoted += fmt::format("... ({} bytes)", text.size());
  return quoted;
}

// The shortest decimal that reads back as the same value of the file's own width.
std::string FloatText(MetadataKind kind, double value) {
  if (kind == MetadataKind::kFloat32) return fmt::format("{}", static_cast<float>(value));
  return fmt::format("{}", value);
}

std::string ValueText(const MetadataValue& value) {
  if (const auto* array = std::get_if<MetadataArray>(&value.value)) {
    std::string text = fmt::format("{} [", array->count);
    MetadataArray::Reader reader(*array);
    const uint64_t num_shown = std::min(array->count, kMaxElements);
    for (uint64_t i = 0; i < num_shown; ++i) {
      text += (i == 0 ? "" : ", ") + ValueText(reader.Next());
    }
    return text + (num_shown < array->count ? ", ...]" : "]");
  }
  if (const auto* number = std::get_if<uint64_t>(&value.value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<int64_t>(&value.value)) return fmt::format("{}", *number);
  if (const auto* number = std::get_if<double>(&value.value)) return FloatText(value.kind, *number);
  if (const auto* truth = std::get_if<bool>(&value.value)) return *truth ? "true" : "false";
  return Quoted(std::get<std::string_view>(value.value));
}

Json ValueJson(const MetadataValue& value) {
  if (const auto* array = std::get_if<MetadataArray>(&value.value)) {
    Json elements = Json::array();
    MetadataArray::Reader reader(*array);
    for (uint64_t i = 0; i < std::min(array->count, kMaxElements); ++i) {
      elements.push_back(ValueJson(reader.Next()));
    }
    return elements;
  }
  if (const auto* number = std::get_if<uint64_t>(&value.value)) return *number;
  if (const auto* number = std::get_if<int64_t>(&value.value)) return *number;
  if (const auto* number = std::get_if<double>(&value.value)) {
    const Json parsed = Json::parse(FloatText(value.kind, *number), nullptr, false);
    return parsed.is_discarded() ? Json() : parsed;
  }
  if (const auto* truth = std::get_if<bool>(&value.value)) return *truth;
  return std::string(std::get<std::string_view>(value.value));
}

std::string ShapeText(const TensorInfo& tensor) {
  std::string text;
  for (uint32_t i = 0; i < tensor.num_dims; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.dims[i]);
  }
  return text;
}

std::string BytesText(const TensorInfo& tensor) {
  return IsSupported(tensor) ? fmt::format("{}", tensor.data.size()) : "unknown";
}

double Mib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string MetadataText(const Gguf& gguf) {
  size_t width = 0;
  for (const MetadataEntry& entry : gguf.metadata()) {
    width = std::max(width, std::min(entry.key.size(), kMaxNameWidth));
  }
  std::string text = fmt::format("metadata: {} entries\n", gguf.metadata().size());
  for (const MetadataEntry& entry : gguf.metadata()) {
    text += fmt::format("  {:<{}}  {:<16}  {}\n", Printable(entry.key), width,
                        MetadataTypeName(entry.value), ValueText(entry.value));
  }
  return text;
}

std::string TensorsText(const Gguf& gguf) {
  size_t width = 0;
  for (const TensorInfo& tensor : gguf.tensors()) {
    width = std::max(width, std::min(tensor.name.size(), kMaxNameWidth));
  }
  std::string text = fmt::format("tensors: {}\n", gguf.tensors().size());
  for (const TensorInfo& tensor : gguf.tensors()) {
    text += fmt::format("  {:<{}}  {:<5}  {:>12} bytes  {}\n", Printable(tensor.name), width,
                        TypeName(tensor.type), BytesText(tensor), ShapeText(tensor));
  }
  return text;
}

std::string TotalsText(const Totals& totals) {
  std::string text = "totals by type:\n";
  for (const auto& [type, total] : totals.by_type) {
    text += fmt::format("  {:<5}  {} tensors, {} elements, {} bytes\n", TypeName(type),
                        total.num_tensors, total.num_elements, total.num_bytes);
  }
  text += fmt::format("  all    {} tensors, {} elements, {} bytes", totals.all.num_tensors,
                      totals.all.num_elements, totals.all.num_bytes);
  const auto bits = BitsPerWeight(totals.all);
  if (bits) text += fmt::format(", {:.2f} bits per weight", *bits);
  return text + "\n";
}

Json TotalJson(const TypeTotal& total) {
  return {
      {"tensors", total.num_tensors}, {"elements", total.num_elements}, {"bytes", total.num_bytes}};
}

Json TensorJson(const TensorInfo& tensor) {
  Json shape = Json::array();
  for (uint32_t i = 0; i < tensor.num_dims; ++i) shape.push_back(tensor.dims[i]);
  return {{"name", std::string(tensor.name)},
          {"type", TypeName(tensor.type)},
          {"shape", shape},
          {"bytes", IsSupported(tensor) ? Json(tensor.data.size()) : Json()}};
}

Json EntryJson(const MetadataEntry& entry) {
  Json json = {{"key", std::string(entry.key)}, {"type", MetadataTypeName(entry.value)}};
  if (const auto* array = std::get_if<MetadataArray>(&entry.value.value)) {
    json["count"] = array->count;
    json["first"] = ValueJson(entry.value);
  } else {
    json["value"] = ValueJson(entry.value);
  }
  return json;
}

}  // namespace

std::string DescribeText(const Gguf& gguf, std::span<const KvCost> kv_costs) {
  std::string text = fmt::format("{}: GGUF version {}, {} bytes ({:.1f} MiB)", gguf.path(),
                                 gguf.version(), gguf.file_bytes(), Mib(gguf.file_bytes()));
  if (gguf.num_parts() > 1) text += fmt::format(" in {} parts", gguf.num_parts());
  text += "\n\n" + MetadataText(gguf) + "\n" + TensorsText(gguf) + "\n" + TotalsText(Sum(gguf));
  if (!kv_costs.empty()) text += "\nKV cache per token:\n";
  for (const KvCost& cost : kv_costs) {
    text += fmt::format("  {:<5}  {} bytes\n", cost.dtype, cost.bytes_per_token);
  }
  return text;
}

std::string DescribeJson(const Gguf& gguf, std::span<const KvCost> kv_costs) {
  Json json = {{"path", gguf.path()},
               {"version", gguf.version()},
               {"parts", gguf.num_parts()},
               {"file_bytes", gguf.file_bytes()},
               {"metadata", Json::array()},
               {"tensors", Json::array()},
               {"totals_by_type", Json::object()},
               {"kv_bytes_per_token", Json::object()}};
  for (const MetadataEntry& entry : gguf.metadata()) json["metadata"].push_back(EntryJson(entry));
  for (const TensorInfo& tensor : gguf.tensors()) json["tensors"].push_back(TensorJson(tensor));
  const Totals totals = Sum(gguf);
  for (const auto& [type, total] : totals.by_type) {
    json["totals_by_type"][TypeName(type)] = TotalJson(total);
  }
  json["total"] = TotalJson(totals.all);
  const auto bits = BitsPerWeight(totals.all);
  json["bits_per_weight"] = bits ? Json(*bits) : Json();
  for (const KvCost& cost : kv_costs) json["kv_bytes_per_token"][cost.dtype] = cost.bytes_per_token;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kvern::model
