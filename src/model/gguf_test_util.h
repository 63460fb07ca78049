// GgufWriter: builds GGUF bytes for tests: good ones and, because it checks nothing, hostile ones.
//
// Metadata and tensors appear in the order they were added. Counts and version can be overridden
// with lies. A tensor's data follows the previous one's, aligned, unless an offset is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_metadata.h"

namespace kvern::model {

// The bytes of a string, in a buffer of exactly their size, so that sanitizers see any overrun.
inline std::vector<std::byte> ExactBytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
std::string RawBytes(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string RawString(std::string_view text) {
  return RawBytes<uint64_t>(text.size()) + std::string(text);
}

class GgufWriter {
 public:
  // One metadata entry of any kind from the bytes of its value.
  GgufWriter& Raw(std::string_view key, uint32_t kind, std::string_view value) {
    metadata_ += RawString(key) + RawBytes(kind) + std::string(value);
    ++num_metadata_;
    return *this;
  }
  template <typename T>
  GgufWriter& Add(std::string_view key, MetadataKind kind, T value) {
    return Raw(key, static_cast<uint32_t>(kind), RawBytes(value));
  }
  GgufWriter& AddUint32(std::string_view key, uint32_t value) {
    return Add(key, MetadataKind::kUint32, value);
  }
  GgufWriter& AddString(std::string_view key, std::string_view value) {
    return Raw(key, static_cast<uint32_t>(MetadataKind::kString), RawString(value));
  }
  GgufWriter& AddRawArray(std::string_view key, uint32_t element_kind, uint64_t count,
                          std::string_view elements) {
    return Raw(key, static_cast<uint32_t>(MetadataKind::kArray),
               RawBytes(element_kind) + RawBytes(count) + std::string(elements));
  }
  template <typename T>
  GgufWriter& AddArray(std::string_view key, MetadataKind kind, const std::vector<T>& values) {
    std::string elements;
    for (const T value : values) elements += RawBytes(value);
    return AddRawArray(key, static_cast<uint32_t>(kind), values.size(), elements);
  }
  GgufWriter& AddStrings(std::string_view key, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& value : values) elements += RawString(value);
    return AddRawArray(key, static_cast<uint32_t>(MetadataKind::kString), values.size(), elements);
  }

  // `offset` is from the start of the data section.
  GgufWriter& AddTensor(std::string_view name, uint32_t type, const std::vector<uint64_t>& dims,
                        std::string_view data, std::optional<uint64_t> offset = std::nullopt) {
    Align(data_);
    infos_ += RawString(name) + RawBytes(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) infos_ += RawBytes(dim);
    infos_ += RawBytes(type) + RawBytes<uint64_t>(offset.value_or(data_.size()));
    data_ += data;
    ++num_tensors_;
    return *this;
  }

  uint32_t version = 3;
  uint64_t alignment = 32;  // of what is written; general.alignment is metadata like any other
  std::optional<uint64_t> claimed_num_metadata;
  std::optional<uint64_t> claimed_num_tensors;

  std::string Bytes() const {
    std::string bytes = "GGUF" + RawBytes(version) +
                        RawBytes(claimed_num_tensors.value_or(num_tensors_)) +
                        RawBytes(claimed_num_metadata.value_or(num_metadata_)) + metadata_ + infos_;
    if (num_tensors_ > 0) Align(bytes);
    return bytes + data_;
  }

 private:
  void Align(std::string& bytes) const {
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  }

  std::string metadata_;
  std::string infos_;
  std::string data_;
  uint64_t num_metadata_ = 0;
  uint64_t num_tensors_ = 0;
};

// A small valid file with every metadata kind, arrays, and tensors of several types and ranks.
inline GgufWriter SmallGguf(uint32_t version = 3) {
  GgufWriter writer;
  writer.version = version;
  writer.AddString("general.architecture", "llama")
      .Add<uint8_t>("a.uint8", MetadataKind::kUint8, 200)
      .Add<int8_t>("a.int8", MetadataKind::kInt8, -2)
      .Add<uint16_t>("a.uint16", MetadataKind::kUint16, 60000)
      .Add<int16_t>("a.int16", MetadataKind::kInt16, 300)
      .AddUint32("a.uint32", 4000000000)
      .Add<int32_t>("a.int32", MetadataKind::kInt32, -70000)
      .Add<float>("a.float32", MetadataKind::kFloat32, 1e-5f)
      .Add<uint8_t>("a.bool", MetadataKind::kBool, 1)
      .Add<uint64_t>("a.uint64", MetadataKind::kUint64, uint64_t{1} << 63)
      .Add<int64_t>("a.int64", MetadataKind::kInt64, -5)
      .Add<double>("a.float64", MetadataKind::kFloat64, 0.1)
      .AddArray<int32_t>("b.ints", MetadataKind::kInt32, {3, 1, -2})
      .AddArray<float>("b.floats", MetadataKind::kFloat32, {0.5f, -1.0f})
      .AddArray<uint8_t>("b.bools", MetadataKind::kBool, {0, 1})
      .AddStrings("b.strings", {"<s>", "", "two\nlines"})
      .AddStrings("b.empty", {})
      .AddTensor("token_embd.weight", 0, {4, 3}, std::string(48, '\1'))
      .AddTensor("blk.0.attn_q.weight", 3, {32, 2}, std::string(40, '\2'))
      .AddTensor("output_norm.weight", 30, {5}, std::string(10, '\3'))
      .AddTensor("blk.0.cube", 8, {32, 1, 1, 2}, std::string(68, '\4'));
  return writer;
}

}  // namespace kvern::model
