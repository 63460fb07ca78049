// Metadata of a GGUF file: values of the thirteen kinds that the format has, as views of the file.
//
// Text and arrays point into the file's bytes and are valid as long as the Gguf that gave them.
// Everything here has been validated when the file was opened: decoding cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace kvern::model {

// Values are those of the file format.
enum class MetadataKind : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// The kind as the format's text spells it ("uint32", "string", …), or nothing for a number that is
// no kind.
std::optional<std::string_view> MetadataKindName(MetadataKind kind);

// Bytes of one value of a kind of fixed size; nothing for strings and arrays.
std::optional<size_t> MetadataKindBytes(MetadataKind kind);

struct MetadataValue;

// An array as it lies in the file. Elements are of one kind, never arrays.
struct MetadataArray {
  MetadataKind element_kind;
  uint64_t count;
  std::span<const std::byte> bytes;

  // Reads the elements one by one, in order. The array may go before the reader does.
  class Reader;
};

struct MetadataValue {
  MetadataKind kind;
  // Integers are widened by their sign, float32 is widened exactly.
  std::variant<uint64_t, int64_t, double, bool, std::string_view, MetadataArray> value;
};

class MetadataArray::Reader {
 public:
  explicit Reader(const MetadataArray& array)
      : kind_(array.element_kind), next_(array.bytes.data()) {}

  // REQUIRES: called at most `count` times.
  MetadataValue Next();

 private:
  MetadataKind kind_;
  const std::byte* next_;
};

struct MetadataEntry {
  std::string_view key;
  MetadataValue value;
};

// Decodes one value of a kind of fixed size from its bytes. REQUIRES: enough bytes.
MetadataValue DecodeFixedSize(MetadataKind kind, const std::byte* bytes);

// "uint32", "array of string": what a message or a listing calls the value.
std::string MetadataTypeName(const MetadataValue& value);

}  // namespace kvern::model
