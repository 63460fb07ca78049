#include "model/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>

namespace kvern::model {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;  // the format's limit
constexpr uint32_t kMaxDims = 4;

// The least that one entry takes in the file: what bounds a believable count.
constexpr uint64_t kMinMetadataBytes = 8 + 1 + 4 + 1;        // key, kind, value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // name, dims, type, offset
constexpr uint64_t kMinStringBytes = 8;

// A position in the file. Reading past the end fails, naming the field that was wanted.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  template <typename T>
  Result<T> Read(std::string_view field) {
    KVERN_ASSIGN_OR_RETURN(const auto bytes, Take(sizeof(T), field));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }

  Result<std::string_view> ReadString(std::string_view field) {
    KVERN_ASSIGN_OR_RETURN(const auto length, Read<uint64_t>(field));
    KVERN_ASSIGN_OR_RETURN(const auto bytes, Take(length, field));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Result<std::span<const std::byte>> Take(uint64_t length, std::string_view field) {
    if (length > remaining()) {
      return Errorf(ErrorCode::kCorrupt,
                    "{}: {} needs {} bytes at offset {}, but the file ends after {}: it is "
                    "truncated or damaged",
                    file_, field, length, offset_, bytes_.size());
    }
    const auto taken = bytes_.subspan(offset_, static_cast<size_t>(length));
    offset_ += taken.size();
    return taken;
  }

  // Fails unless `count` items of at least `min_bytes` each can follow.
  Status CheckCount(uint64_t count, uint64_t min_bytes, std::string_view field) const {
    if (count <= remaining() / min_bytes) return {};
    return Errorf(ErrorCode::kCorrupt,
                  "{}: {} is {}, more than the {} bytes that follow can hold: the file is "
                  "truncated or damaged",
                  file_, field, count, remaining());
  }

  size_t offset() const { return offset_; }
  size_t remaining() const { return bytes_.size() - offset_; }
  std::span<const std::byte> Since(size_t begin) const {
    return bytes_.subspan(begin, offset_ - begin);
  }

 private:
  const std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t offset_ = 0;
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& file)
      : bytes_(bytes), file_(file), cursor_(bytes, file) {}

  Result<GgufPart> Parse() {
    KVERN_RETURN_IF_ERROR(ReadHeader());
    KVERN_RETURN_IF_ERROR(ReadMetadata());
    KVERN_RETURN_IF_ERROR(ReadTensorInfos());
    KVERN_RETURN_IF_ERROR(PlaceTensors());
    return std::move(part_);
  }

 private:
  // A tensor whose data has not been found yet.
  struct Placement {
    uint64_t offset;  // from the start of the data section
    uint64_t bytes;   // 0 if the type is unsupported
  };

  Status ReadHeader();
  Status CheckVersion(uint32_t version) const;
  Status ReadMetadata();
  Result<MetadataEntry> ReadEntry();
  Result<MetadataValue> ReadValue(MetadataKind kind, const std::string& field);
  Result<MetadataValue> ReadArray(const std::string& field);
  Status CheckBools(std::span<const std::byte> bytes, const std::string& field) const;
  Result<uint64_t> Alignment() const;
  Status ReadTensorInfos();
  Status ReadTensorInfo();
  Status ReadShape(TensorInfo& tensor, const std::string& field);
  Result<uint64_t> DataBytes(const TensorInfo& tensor, const std::string& field) const;
  Status PlaceTensors();
  Status CheckOverlap() const;

  template <typename... Args>
  Error Corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    return Errorf(ErrorCode::kCorrupt, "{}: {}", file_,
                  fmt::format(format, std::forward<Args>(args)...));
  }

  const std::span<const std::byte> bytes_;
  const std::string& file_;
  Cursor cursor_;
  uint64_t num_tensors_ = 0;
  uint64_t num_metadata_ = 0;
  std::vector<Placement> placements_;  // parallel to part_.tensors
  GgufPart part_{};
};

Status Parser::ReadHeader() {
  const auto magic = cursor_.Read<uint32_t>("magic");
  if (!magic.ok() || *magic != kMagic) {
    return Corrupt("not a GGUF file: it does not start with \"GGUF\"");
  }
  KVERN_ASSIGN_OR_RETURN(part_.version, cursor_.Read<uint32_t>("version"));
  KVERN_RETURN_IF_ERROR(CheckVersion(part_.version));
  KVERN_ASSIGN_OR_RETURN(num_tensors_, cursor_.Read<uint64_t>("tensor count"));
  KVERN_ASSIGN_OR_RETURN(num_metadata_, cursor_.Read<uint64_t>("metadata count"));
  KVERN_RETURN_IF_ERROR(cursor_.CheckCount(num_tensors_, kMinTensorBytes, "tensor count"));
  return cursor_.CheckCount(num_metadata_, kMinMetadataBytes, "metadata count");
}

Status Parser::CheckVersion(uint32_t version) const {
  if (version == 2 || version == 3) return {};
  if (version == 0x02000000 || version == 0x03000000) {
    return Errorf(ErrorCode::kUnsupported,
                  "{}: big-endian GGUF is not supported: convert the model to little-endian",
                  file_);
  }
  return Errorf(ErrorCode::kUnsupported,
                "{}: GGUF version {} is not supported (2 and 3 are): convert the model again",
                file_, version);
}

Status Parser::ReadMetadata() {
  std::set<std::string_view> keys;
  part_.metadata.reserve(static_cast<size_t>(num_metadata_));
  for (uint64_t i = 0; i < num_metadata_; ++i) {
    KVERN_ASSIGN_OR_RETURN(const MetadataEntry entry, ReadEntry());
    if (!keys.insert(entry.key).second) {
      return Corrupt("metadata key {} occurs twice", Printable(entry.key));
    }
    part_.metadata.push_back(entry);
  }
  return {};
}

Result<MetadataEntry> Parser::ReadEntry() {
  const std::string number = fmt::format("metadata key {}", part_.metadata.size());
  KVERN_ASSIGN_OR_RETURN(const auto key, cursor_.ReadString(number));
  if (key.empty() || key.size() > kMaxKeyBytes) {
    return Corrupt("{} is {} bytes long (1 to {} are allowed)", number, key.size(), kMaxKeyBytes);
  }
  const std::string field = fmt::format("metadata {}", Printable(key));
  KVERN_ASSIGN_OR_RETURN(const auto kind, cursor_.Read<uint32_t>(field));
  KVERN_ASSIGN_OR_RETURN(const auto value, ReadValue(MetadataKind{kind}, field));
  return MetadataEntry{key, value};
}

Result<MetadataValue> Parser::ReadValue(MetadataKind kind, const std::string& field) {
  if (kind == MetadataKind::kArray) return ReadArray(field);
  if (kind == MetadataKind::kString) {
    KVERN_ASSIGN_OR_RETURN(const auto text, cursor_.ReadString(field));
    return MetadataValue{kind, text};
  }
  const auto size = MetadataKindBytes(kind);
  if (!size) return Corrupt("{} has unknown kind {}", field, static_cast<uint32_t>(kind));
  KVERN_ASSIGN_OR_RETURN(const auto bytes, cursor_.Take(*size, field));
  if (kind == MetadataKind::kBool) KVERN_RETURN_IF_ERROR(CheckBools(bytes, field));
  return DecodeFixedSize(kind, bytes.data());
}

Result<MetadataValue> Parser::ReadArray(const std::string& field) {
  KVERN_ASSIGN_OR_RETURN(const auto kind_number, cursor_.Read<uint32_t>(field));
  KVERN_ASSIGN_OR_RETURN(const auto count, cursor_.Read<uint64_t>(field));
  const auto kind = MetadataKind{kind_number};
  if (!MetadataKindName(kind)) {
    return Corrupt("{} is an array of unknown kind {}", field, kind_number);
  }
  if (kind == MetadataKind::kArray) {
    return Errorf(ErrorCode::kUnsupported, "{}: {} is an array of arrays, which is not supported",
                  file_, field);
  }
  const auto size = MetadataKindBytes(kind);
  KVERN_RETURN_IF_ERROR(
      cursor_.CheckCount(count, size.value_or(kMinStringBytes), field + "'s element count"));
  const size_t begin = cursor_.offset();
  if (size) {
    KVERN_RETURN_IF_ERROR(cursor_.Take(count * *size, field));
  } else {
    for (uint64_t i = 0; i < count; ++i) KVERN_RETURN_IF_ERROR(cursor_.ReadString(field));
  }
  const auto bytes = cursor_.Since(begin);
  if (kind == MetadataKind::kBool) KVERN_RETURN_IF_ERROR(CheckBools(bytes, field));
  return MetadataValue{MetadataKind::kArray, MetadataArray{kind, count, bytes}};
}

Status Parser::CheckBools(std::span<const std::byte> bytes, const std::string& field) const {
  for (const std::byte value : bytes) {
    if (value > std::byte{1}) {
      return Corrupt("{} has a bool of value {} (0 or 1 is allowed)", field,
                     std::to_integer<int>(value));
    }
  }
  return {};
}

Result<uint64_t> Parser::Alignment() const {
  const auto entry =
      std::ranges::find(part_.metadata, std::string_view("general.alignment"), &MetadataEntry::key);
  if (entry == part_.metadata.end()) return kDefaultAlignment;
  if (entry->value.kind != MetadataKind::kUint32) {
    return Corrupt("metadata general.alignment: expected uint32, found {}",
                   MetadataTypeName(entry->value));
  }
  const uint64_t alignment = std::get<uint64_t>(entry->value.value);
  if (!std::has_single_bit(alignment) || alignment < 8 || alignment > kMaxAlignment) {
    return Corrupt("metadata general.alignment is {}: expected a power of two from 8 to {}",
                   alignment, kMaxAlignment);
  }
  return alignment;
}

Status Parser::ReadTensorInfos() {
  KVERN_RETURN_IF_ERROR(cursor_.CheckCount(num_tensors_, kMinTensorBytes, "tensor count"));
  std::set<std::string_view> names;
  part_.tensors.reserve(static_cast<size_t>(num_tensors_));
  placements_.reserve(static_cast<size_t>(num_tensors_));
  for (uint64_t i = 0; i < num_tensors_; ++i) {
    KVERN_RETURN_IF_ERROR(ReadTensorInfo());
    const std::string_view name = part_.tensors.back().name;
    if (!names.insert(name).second) return Corrupt("tensor {} occurs twice", Printable(name));
  }
  return {};
}

Status Parser::ReadTensorInfo() {
  const std::string number = fmt::format("name of tensor {}", part_.tensors.size());
  TensorInfo tensor{};
  KVERN_ASSIGN_OR_RETURN(tensor.name, cursor_.ReadString(number));
  if (tensor.name.empty() || tensor.name.size() > kMaxKeyBytes) {
    return Corrupt("{} is {} bytes long (1 to {} are allowed)", number, tensor.name.size(),
                   kMaxKeyBytes);
  }
  const std::string field = fmt::format("tensor {}", Printable(tensor.name));
  KVERN_RETURN_IF_ERROR(ReadShape(tensor, field));
  KVERN_ASSIGN_OR_RETURN(const auto type, cursor_.Read<uint32_t>(field));
  tensor.type = compute::QuantType{type};
  Placement placement{};
  KVERN_ASSIGN_OR_RETURN(placement.offset, cursor_.Read<uint64_t>(field));
  KVERN_ASSIGN_OR_RETURN(placement.bytes, DataBytes(tensor, field));
  part_.tensors.push_back(tensor);
  placements_.push_back(placement);
  return {};
}

Status Parser::ReadShape(TensorInfo& tensor, const std::string& field) {
  KVERN_ASSIGN_OR_RETURN(tensor.num_dims, cursor_.Read<uint32_t>(field));
  if (tensor.num_dims == 0 || tensor.num_dims > kMaxDims) {
    return Corrupt("{} has {} dimensions (1 to {} are allowed)", field, tensor.num_dims, kMaxDims);
  }
  tensor.dims.fill(1);
  tensor.num_elements = 1;
  for (uint32_t i = 0; i < tensor.num_dims; ++i) {
    KVERN_ASSIGN_OR_RETURN(tensor.dims[i], cursor_.Read<uint64_t>(field));
    if (tensor.dims[i] == 0) return Corrupt("{}: dimension {} is zero", field, i);
    const bool overflows =
        __builtin_mul_overflow(tensor.num_elements, tensor.dims[i], &tensor.num_elements);
    if (overflows || tensor.num_elements > std::numeric_limits<int64_t>::max()) {
      return Corrupt("{}: dimension {} is {}, so the number of elements overflows", field, i,
                     tensor.dims[i]);
    }
  }
  return {};
}

// Bytes of the tensor's data; 0 if its type is unsupported.
Result<uint64_t> Parser::DataBytes(const TensorInfo& tensor, const std::string& field) const {
  const compute::QuantTraits* traits = compute::FindQuantTraits(tensor.type);
  if (traits == nullptr) return uint64_t{0};
  if (tensor.dims[0] % traits->block_elements != 0) {
    return Corrupt("{}: dimension 0 is {}, not a multiple of the {} elements of a {} block", field,
                   tensor.dims[0], traits->block_elements, traits->name);
  }
  uint64_t bytes = 0;
  const uint64_t num_blocks = tensor.num_elements / traits->block_elements;
  if (__builtin_mul_overflow(num_blocks, uint64_t{traits->block_bytes}, &bytes)) {
    return Corrupt("{}: its size in bytes overflows ({} elements)", field, tensor.num_elements);
  }
  return bytes;
}

Status Parser::PlaceTensors() {
  KVERN_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment());
  const uint64_t data_begin = (cursor_.offset() + alignment - 1) / alignment * alignment;
  for (size_t i = 0; i < placements_.size(); ++i) {
    TensorInfo& tensor = part_.tensors[i];
    const auto [offset, bytes] = placements_[i];
    if (offset % alignment != 0) {
      return Corrupt("tensor {}: offset {} is not a multiple of the alignment {}",
                     Printable(tensor.name), offset, alignment);
    }
    if (data_begin > bytes_.size() || offset > bytes_.size() - data_begin ||
        bytes > bytes_.size() - data_begin - offset) {
      return Corrupt(
          "tensor {}: {} bytes at offset {} of the data (which starts at {}) end after the file "
          "({} bytes): it is truncated or damaged",
          Printable(tensor.name), bytes, offset, data_begin, bytes_.size());
    }
    tensor.data = bytes_.subspan(static_cast<size_t>(data_begin + offset), bytes);
  }
  return CheckOverlap();
}

Status Parser::CheckOverlap() const {
  std::vector<const TensorInfo*> by_address;
  by_address.reserve(part_.tensors.size());
  for (const TensorInfo& tensor : part_.tensors) {
    if (!tensor.data.empty()) by_address.push_back(&tensor);
  }
  std::ranges::sort(by_address, {}, [](const TensorInfo* tensor) { return tensor->data.data(); });
  for (size_t i = 1; i < by_address.size(); ++i) {
    const TensorInfo& before = *by_address[i - 1];
    const TensorInfo& after = *by_address[i];
    if (before.data.data() + before.data.size() > after.data.data()) {
      return Corrupt("tensors {} and {} overlap", Printable(before.name), Printable(after.name));
    }
  }
  return {};
}

}  // namespace

Result<GgufPart> ParseGgufPart(std::span<const std::byte> bytes, const std::string& name) {
  return Parser(bytes, name).Parse();
}

std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 64;
  std::string printable;
  for (const char c : text.substr(0, kMaxBytes)) {
    if (c >= 0x20 && c < 0x7F) {
      printable += c;
    } else {
      printable += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kMaxBytes) printable += "...";
  return printable;
}

}  // namespace kvern::model
