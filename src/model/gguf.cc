#include "model/gguf.h"

#include <algorithm>
#include <limits>

namespace kvern::model {
namespace {

std::optional<uint64_t> AsUint(const MetadataValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value.value)) return *number;
  const auto* number = std::get_if<int64_t>(&value.value);
  if (number == nullptr || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

std::optional<int64_t> AsInt(const MetadataValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value.value)) return *number;
  const auto* number = std::get_if<uint64_t>(&value.value);
  if (number == nullptr || *number > uint64_t{std::numeric_limits<int64_t>::max()}) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

std::optional<double> AsDouble(const MetadataValue& value) {
  const auto* number = std::get_if<double>(&value.value);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

std::optional<bool> AsBool(const MetadataValue& value) {
  const auto* truth = std::get_if<bool>(&value.value);
  return truth == nullptr ? std::nullopt : std::optional(*truth);
}

std::optional<float> AsFloat32(const MetadataValue& value) {
  if (value.kind != MetadataKind::kFloat32) return std::nullopt;
  return static_cast<float>(std::get<double>(value.value));
}

std::optional<std::string_view> AsString(const MetadataValue& value) {
  const auto* text = std::get_if<std::string_view>(&value.value);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

// What a split part says of itself: "split.count" and its two companions.
struct SplitInfo {
  uint64_t no;
  uint64_t count;
  uint64_t num_tensors;  // of all parts
};

const MetadataValue* FindEntry(const GgufPart& part, std::string_view key) {
  const auto entry = std::ranges::find(part.metadata, key, &MetadataEntry::key);
  return entry == part.metadata.end() ? nullptr : &entry->value;
}

Result<uint64_t> SplitField(const GgufPart& part, std::string_view key, const std::string& path) {
  const MetadataValue* value = FindEntry(part, key);
  if (value == nullptr) {
    return Errorf(ErrorCode::kCorrupt, "{}: metadata {} is missing from a split model", path, key);
  }
  const auto number = AsUint(*value);
  if (number) return *number;
  return Errorf(ErrorCode::kCorrupt, "{}: metadata {}: expected an unsigned integer, found {}",
                path, key, MetadataTypeName(*value));
}

Result<SplitInfo> ReadSplitInfo(const GgufPart& part, const std::string& path) {
  if (FindEntry(part, "split.count") == nullptr) {
    return SplitInfo{.no = 0, .count = 1, .num_tensors = part.tensors.size()};
  }
  SplitInfo info{};
  KVERN_ASSIGN_OR_RETURN(info.count, SplitField(part, "split.count", path));
  if (info.count <= 1) return SplitInfo{.no = 0, .count = 1, .num_tensors = part.tensors.size()};
  KVERN_ASSIGN_OR_RETURN(info.no, SplitField(part, "split.no", path));
  KVERN_ASSIGN_OR_RETURN(info.num_tensors, SplitField(part, "split.tensors.count", path));
  if (info.no >= info.count) {
    return Errorf(ErrorCode::kCorrupt, "{}: metadata split.no is {}, but split.count is {}", path,
                  info.no, info.count);
  }
  return info;
}

std::string SplitSuffix(uint64_t no, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", no + 1, count);
}

// The common start of the names of all parts, from the name of one.
Result<std::string> SplitPrefix(const std::string& path, const SplitInfo& info) {
  const std::string suffix = SplitSuffix(info.no, info.count);
  if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  return Errorf(
      ErrorCode::kInvalidArgument,
      "{}: is part {} of a model split into {}: its name must end in {} so that the other "
      "parts are found",
      path, info.no + 1, info.count, suffix);
}

std::string SupportedTypes() {
  std::string names;
  for (const compute::QuantTraits& traits : compute::QuantTypes()) {
    if (!names.empty()) names += ", ";
    names += traits.name;
  }
  return names;
}

}  // namespace

Result<Gguf> Gguf::Open(const std::string& path) {
  KVERN_ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  KVERN_ASSIGN_OR_RETURN(GgufPart part, ParseGgufPart(file.bytes(), path));
  KVERN_ASSIGN_OR_RETURN(const SplitInfo info, ReadSplitInfo(part, path));
  Gguf gguf(path);
  if (info.count == 1) {
    gguf.file_bytes_ = file.bytes().size();
    gguf.files_.push_back(std::move(file));
    KVERN_RETURN_IF_ERROR(gguf.AddPart(std::move(part), path));
    return gguf;
  }
  KVERN_ASSIGN_OR_RETURN(const std::string prefix, SplitPrefix(path, info));
  KVERN_RETURN_IF_ERROR(gguf.OpenParts(prefix, info.count));
  return gguf;
}

Result<Gguf> Gguf::Parse(std::span<const std::byte> bytes, const std::string& name) {
  KVERN_ASSIGN_OR_RETURN(GgufPart part, ParseGgufPart(bytes, name));
  KVERN_ASSIGN_OR_RETURN(const SplitInfo info, ReadSplitInfo(part, name));
  if (info.count != 1) {
    return Errorf(ErrorCode::kUnsupported,
                  "{}: is part {} of a model split into {}: open the files", name, info.no + 1,
                  info.count);
  }
  Gguf gguf(name);
  gguf.file_bytes_ = bytes.size();
  KVERN_RETURN_IF_ERROR(gguf.AddPart(std::move(part), name));
  return gguf;
}

Status Gguf::OpenParts(const std::string& prefix, uint64_t count) {
  uint64_t num_tensors = 0;
  for (uint64_t no = 0; no < count; ++no) {
    const std::string part_path = prefix + SplitSuffix(no, count);
    auto file = MappedFile::Open(part_path);
    if (!file.ok()) {
      return Errorf(file.error().code, "{} (part {} of {}: keep all parts in one folder)",
                    file.error().message, no + 1, count);
    }
    KVERN_ASSIGN_OR_RETURN(GgufPart part, ParseGgufPart(file->bytes(), part_path));
    KVERN_ASSIGN_OR_RETURN(const SplitInfo info, ReadSplitInfo(part, part_path));
    if (no == 0) num_tensors = info.num_tensors;
    if (info.no != no || info.count != count || info.num_tensors != num_tensors) {
      return Errorf(ErrorCode::kCorrupt,
                    "{}: says it is part {} of {} with {} tensors in all, expected part {} of {} "
                    "with {}: it belongs to another model",
                    part_path, info.no + 1, info.count, info.num_tensors, no + 1, count,
                    num_tensors);
    }
    file_bytes_ += file->bytes().size();
    files_.push_back(std::move(*file));
    KVERN_RETURN_IF_ERROR(AddPart(std::move(part), part_path));
  }
  if (tensors_.size() == num_tensors) return {};
  return Errorf(ErrorCode::kCorrupt,
                "{}: metadata split.tensors.count is {}, but the parts hold {} tensors", path_,
                num_tensors, tensors_.size());
}

Status Gguf::AddPart(GgufPart part, const std::string& part_path) {
  if (num_parts_ == 0) {
    version_ = part.version;
    metadata_ = std::move(part.metadata);
    for (size_t i = 0; i < metadata_.size(); ++i) metadata_index_[metadata_[i].key] = i;
  }
  for (TensorInfo& tensor : part.tensors) {
    tensor.part = static_cast<uint32_t>(num_parts_);
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return Errorf(ErrorCode::kCorrupt, "{}: tensor {} is also in an earlier part", part_path,
                    Printable(tensor.name));
    }
    tensors_.push_back(tensor);
  }
  ++num_parts_;
  return {};
}

const MetadataValue* Gguf::Find(std::string_view key) const {
  const auto found = metadata_index_.find(key);
  return found == metadata_index_.end() ? nullptr : &metadata_[found->second].value;
}

Error Gguf::WrongKind(std::string_view key, std::string_view expected) const {
  const MetadataValue& found = *Find(key);
  std::string what = MetadataTypeName(found);
  if (const auto* number = std::get_if<int64_t>(&found.value)) {
    what += fmt::format(" {}", *number);
  }
  return Errorf(ErrorCode::kCorrupt, "{}: metadata {}: expected {}, found {}", path_,
                Printable(key), expected, what);
}

template <typename T>
Result<T> Gguf::Require(std::string_view key, Result<std::optional<T>> found) const {
  if (!found.ok()) return found.error();
  if (found->has_value()) return std::move(**found);
  return Errorf(ErrorCode::kNotFound, "{}: metadata {} is missing", path_, Printable(key));
}

template <typename T, typename Convert>
Result<std::optional<T>> Gguf::FindScalar(std::string_view key, std::string_view expected,
                                          Convert convert) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return std::optional<T>();
  std::optional<T> converted = convert(*value);
  if (!converted) return WrongKind(key, expected);
  return converted;
}

template <typename T, typename Convert>
Result<std::optional<std::vector<T>>> Gguf::FindArray(std::string_view key,
                                                      std::string_view expected,
                                                      Convert convert) const {
  const MetadataValue* value = Find(key);
  if (value == nullptr) return std::optional<std::vector<T>>();
  const auto* array = std::get_if<MetadataArray>(&value->value);
  if (array == nullptr) return WrongKind(key, expected);
  std::vector<T> elements;
  elements.reserve(static_cast<size_t>(array->count));
  MetadataArray::Reader reader(*array);
  for (uint64_t i = 0; i < array->count; ++i) {
    const std::optional<T> element = convert(reader.Next());
    if (!element) return WrongKind(key, expected);
    elements.push_back(*element);
  }
  return std::optional<std::vector<T>>(std::move(elements));
}

Result<std::optional<uint64_t>> Gguf::FindUint(std::string_view key) const {
  return FindScalar<uint64_t>(key, "an unsigned integer", AsUint);
}

Result<std::optional<double>> Gguf::FindFloat(std::string_view key) const {
  return FindScalar<double>(key, "float32 or float64", AsDouble);
}

Result<std::optional<bool>> Gguf::FindBool(std::string_view key) const {
  return FindScalar<bool>(key, "bool", AsBool);
}

Result<std::optional<std::string_view>> Gguf::FindString(std::string_view key) const {
  return FindScalar<std::string_view>(key, "string", AsString);
}

Result<std::optional<std::vector<std::string_view>>> Gguf::FindStrings(std::string_view key) const {
  return FindArray<std::string_view>(key, "array of string", AsString);
}

Result<std::optional<std::vector<int64_t>>> Gguf::FindInts(std::string_view key) const {
  return FindArray<int64_t>(key, "array of integers", AsInt);
}

Result<std::optional<std::vector<float>>> Gguf::FindFloats(std::string_view key) const {
  return FindArray<float>(key, "array of float32", AsFloat32);
}

Result<uint64_t> Gguf::GetUint(std::string_view key) const { return Require(key, FindUint(key)); }

Result<double> Gguf::GetFloat(std::string_view key) const { return Require(key, FindFloat(key)); }

Result<bool> Gguf::GetBool(std::string_view key) const { return Require(key, FindBool(key)); }

Result<std::string_view> Gguf::GetString(std::string_view key) const {
  return Require(key, FindString(key));
}

Result<std::vector<std::string_view>> Gguf::GetStrings(std::string_view key) const {
  return Require(key, FindStrings(key));
}

Result<std::vector<int64_t>> Gguf::GetInts(std::string_view key) const {
  return Require(key, FindInts(key));
}

Result<std::vector<float>> Gguf::GetFloats(std::string_view key) const {
  return Require(key, FindFloats(key));
}

const TensorInfo* Gguf::FindTensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

Result<const TensorInfo*> Gguf::GetTensor(std::string_view name) const {
  const TensorInfo* tensor = FindTensor(name);
  if (tensor == nullptr) {
    return Errorf(ErrorCode::kNotFound, "{}: tensor {} is missing", path_, Printable(name));
  }
  if (compute::FindQuantTraits(tensor->type) == nullptr) {
    return Errorf(ErrorCode::kUnsupported,
                  "{}: tensor {} is of type {}, which is not supported: use a model in one of {}",
                  path_, Printable(name), static_cast<uint32_t>(tensor->type), SupportedTypes());
  }
  return tensor;
}

void Gguf::Discard(const TensorInfo& tensor) const {
  if (files_.empty()) return;
  const MappedFile& file = files_[tensor.part];
  file.Discard(static_cast<size_t>(tensor.data.data() - file.bytes().data()), tensor.data.size());
}

}  // namespace kvern::model
