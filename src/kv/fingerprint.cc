#include "kv/fingerprint.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/result.h"

namespace kvern::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxValueBytes = 4096;
constexpr size_t kMaxBytes = 64 << 10;

// On disk; the order of FieldValue's alternatives, from 1.
enum class FieldType : uint8_t { kUnsigned = 1, kFloat, kText, kDigest };

struct FieldView {
  std::string_view name;
  FieldType type;
  std::span<const std::byte> value;
};

template <typename T>
void Append(std::vector<std::byte>& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

template <typename T>
T Load(std::span<const std::byte> bytes) {
  T value;
  CHECK(bytes.size() == sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

bool IsValueSize(FieldType type, size_t bytes) {
  switch (type) {
    case FieldType::kUnsigned:
    case FieldType::kFloat:
      return bytes == sizeof(uint64_t);
    case FieldType::kText:
      return bytes <= kMaxValueBytes;
    case FieldType::kDigest:
      return bytes == sizeof(Digest);
  }
  return false;
}

std::span<const std::byte> ValueBytes(const FieldValue& value) {
  return std::visit(
      [](const auto& held) -> std::span<const std::byte> {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::string>) {
          return std::as_bytes(std::span(held));
        } else {
          return std::as_bytes(std::span(&held, 1));
        }
      },
      value);
}

void AppendField(std::vector<std::byte>& out, const FingerprintField& field) {
  const auto value = ValueBytes(field.value);
  const auto name = std::as_bytes(std::span(field.name));
  Append(out, static_cast<uint8_t>(name.size()));
  Append(out, static_cast<uint8_t>(field.value.index() + 1));
  Append(out, static_cast<uint16_t>(value.size()));
  out.insert(out.end(), name.begin(), name.end());
  out.insert(out.end(), value.begin(), value.end());
}

// The first field of `rest`, which is then cut off. None where `rest` does not start with one.
std::optional<FieldView> TakeField(std::span<const std::byte>& rest) {
  constexpr size_t kFixedBytes = 4;
  if (rest.size() < kFixedBytes) return std::nullopt;
  const auto name_bytes = Load<uint8_t>(rest.first(1));
  const auto type = FieldType(Load<uint8_t>(rest.subspan(1, 1)));
  const auto value_bytes = Load<uint16_t>(rest.subspan(2, 2));
  rest = rest.subspan(kFixedBytes);
  if (rest.size() < size_t{name_bytes} + value_bytes) return std::nullopt;
  const std::string_view name(reinterpret_cast<const char*>(rest.data()), name_bytes);
  const FieldView field{name, type, rest.subspan(name_bytes, value_bytes)};
  rest = rest.subspan(size_t{name_bytes} + value_bytes);
  if (!IsName(name) || !IsValueSize(type, value_bytes)) return std::nullopt;
  return field;
}

std::optional<std::vector<FieldView>> ParseFields(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(uint32_t) || bytes.size() > kMaxBytes) return std::nullopt;
  const auto num_fields = Load<uint32_t>(bytes.first(sizeof(uint32_t)));
  auto rest = bytes.subspan(sizeof(uint32_t));
  std::vector<FieldView> fields;  // grows with the bytes that are there, not by their count
  while (!rest.empty()) {
    const auto field = TakeField(rest);
    if (!field || (!fields.empty() && fields.back().name >= field->name)) return std::nullopt;
    fields.push_back(*field);
  }
  if (fields.size() != num_fields) return std::nullopt;
  return fields;
}

// Text from outside must not play with the terminal.
std::string Printable(std::span<const std::byte> text) {
  constexpr size_t kMaxShown = 64;
  std::string shown;
  for (const std::byte byte : text.first(std::min(text.size(), kMaxShown))) {
    const char c = static_cast<char>(byte);
    shown += c >= ' ' && c <= '~' ? c : '?';
  }
  return text.size() > kMaxShown ? shown + "..." : shown;
}

std::string DescribeValue(const FieldView& field) {
  switch (field.type) {
    case FieldType::kUnsigned:
      return fmt::format("{}", Load<uint64_t>(field.value));
    case FieldType::kFloat:
      return fmt::format("{}", Load<double>(field.value));
    case FieldType::kText:
      return fmt::format("\"{}\"", Printable(field.value));
    case FieldType::kDigest:
      return ToHex(Load<Digest>(field.value));
  }
  return {};
}

bool AreEqual(const FieldView& a, const FieldView& b) {
  return a.type == b.type && std::ranges::equal(a.value, b.value);
}

std::string_view KindName(GroupKind kind) {
  switch (kind) {
    case GroupKind::kFull:
      return "full";
    case GroupKind::kWindow:
      return "window";
    case GroupKind::kState:
      return "state";
  }
  return {};
}

}  // namespace

Result<Fingerprint> Fingerprint::Make(uint32_t numerics_version,
                                      std::vector<FingerprintField> fields) {
  fields.push_back({std::string(kNumericsField), uint64_t{numerics_version}});
  std::ranges::sort(fields, {}, &FingerprintField::name);
  std::vector<std::byte> bytes;
  Append(bytes, static_cast<uint32_t>(fields.size()));
  const FingerprintField* previous = nullptr;
  for (const FingerprintField& field : fields) {
    if (!IsName(field.name)) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "fingerprint: a field's name has 1 to 64 of a-z, 0-9, _ and .: \"{}\"",
                    Printable(std::as_bytes(std::span(field.name))));
    }
    if (previous != nullptr && previous->name == field.name) {
      return Errorf(ErrorCode::kInvalidArgument, "fingerprint: field {} occurs twice", field.name);
    }
    if (ValueBytes(field.value).size() > kMaxValueBytes) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "fingerprint: field {} is longer than {} bytes: use a digest", field.name,
                    kMaxValueBytes);
    }
    AppendField(bytes, field);
    previous = &field;
  }
  if (bytes.size() > kMaxBytes) {
    return Errorf(ErrorCode::kInvalidArgument, "fingerprint: {} bytes of fields, over {}",
                  bytes.size(), kMaxBytes);
  }
  return Fingerprint(std::move(bytes));
}

Fingerprint::Fingerprint(std::vector<std::byte> bytes)
    : bytes_(std::move(bytes)), digest_(Blake2b256({bytes_})) {}

FingerprintField GroupField(GroupId group, const GroupSpec& spec) {
  return {fmt::format("group.{}", static_cast<uint32_t>(group)),
          fmt::format("kind={} window={} block_bytes={} block_tokens={} row_independent={:d}",
                      KindName(spec.kind), spec.window, spec.block_bytes, spec.block_tokens,
                      spec.row_independent)};
}

bool IsCanonicalFingerprint(std::span<const std::byte> bytes) {
  return ParseFields(bytes).has_value();
}

std::optional<FieldDifference> FindDifference(std::span<const std::byte> found,
                                              const Fingerprint& expected) {
  if (std::ranges::equal(found, expected.bytes())) return std::nullopt;
  const auto ours = ParseFields(expected.bytes());
  const auto theirs = ParseFields(found);
  CHECK(ours.has_value() && theirs.has_value());
  auto our = ours->begin();
  auto their = theirs->begin();
  while (our != ours->end() && their != theirs->end() && our->name == their->name &&
         AreEqual(*our, *their)) {
    ++our, ++their;
  }
  const bool has_our = our != ours->end(), has_their = their != theirs->end();
  CHECK(has_our || has_their);  // equal fields have equal bytes
  if (!has_their || (has_our && our->name < their->name)) {
    return FieldDifference{std::string(our->name), fmt::format("field {} is missing, expected {}",
                                                               our->name, DescribeValue(*our))};
  }
  if (!has_our || their->name < our->name) {
    return FieldDifference{
        std::string(their->name),
        fmt::format("field {} = {} is unknown here", their->name, DescribeValue(*their))};
  }
  return FieldDifference{std::string(our->name),
                         fmt::format("field {} = {}, expected {}", our->name, DescribeValue(*their),
                                     DescribeValue(*our))};
}

}  // namespace kvern::kv
