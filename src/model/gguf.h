// Gguf: a model file (or its split parts), open for reading without copying it.
//
// Versions 2 and 3, little-endian. The file is mapped; names, text and tensor data are views of the
// mapping, valid as long as the object lives (moving it keeps them). Everything that the file says
// is checked when it is opened, so a hostile file gives an error that names the file and the field,
// and memory use stays proportional to the file's size. docs/gguf.md lists the checks.
//
// A tensor of a type that Kvern does not compute with does not stop the file from opening: it can
// be listed, and GetTensor() refuses it.
//
// Immutable after opening: safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "model/gguf_parse.h"

namespace kvern::model {

class Gguf {
 public:
  // Opens a file; any part of a split model opens all parts.
  // Errors: kNotFound, kIo, kCorrupt, kUnsupported (version 1, big-endian, nested arrays).
  static Result<Gguf> Open(const std::string& path);

  // The same for one unsplit file in memory that the caller keeps. `name` is what messages call it.
  static Result<Gguf> Parse(std::span<const std::byte> bytes, const std::string& name);

  // The file as the user named it.
  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  size_t num_parts() const { return num_parts_; }
  uint64_t file_bytes() const { return file_bytes_; }  // all parts

  // In file order; a split model's metadata is its first part's.
  std::span<const MetadataEntry> metadata() const { return metadata_; }
  const MetadataValue* Find(std::string_view key) const;

  // The value of a key that must exist. Errors: kNotFound; kCorrupt if it is of another kind. The
  // message names file, key, expected and found kind.
  Result<uint64_t> GetUint(std::string_view key) const;  // any integer kind, not negative
  Result<double> GetFloat(std::string_view key) const;   // float32 or float64
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  Result<std::vector<int64_t>> GetInts(std::string_view key) const;  // array of any integer kind
  Result<std::vector<float>> GetFloats(std::string_view key) const;  // array of float32

  // The same for a key that may be absent, which is not an error.
  Result<std::optional<uint64_t>> FindUint(std::string_view key) const;
  Result<std::optional<double>> FindFloat(std::string_view key) const;
  Result<std::optional<bool>> FindBool(std::string_view key) const;
  Result<std::optional<std::string_view>> FindString(std::string_view key) const;
  Result<std::optional<std::vector<std::string_view>>> FindStrings(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> FindInts(std::string_view key) const;
  Result<std::optional<std::vector<float>>> FindFloats(std::string_view key) const;

  // In file order, parts in order.
  std::span<const TensorInfo> tensors() const { return tensors_; }
  const TensorInfo* FindTensor(std::string_view name) const;

  // A tensor that must exist and be computable. Errors: kNotFound, kUnsupported (names the type).
  Result<const TensorInfo*> GetTensor(std::string_view name) const;

  // Drops the tensor's pages from memory: for data that will not be read again. Reading it all the
  // same fetches it from the file anew.
  void Discard(const TensorInfo& tensor) const;

 private:
  explicit Gguf(std::string path) : path_(std::move(path)) {}

  Status OpenParts(const std::string& prefix, uint64_t count);
  Status AddPart(GgufPart part, const std::string& part_path);
  Error WrongKind(std::string_view key, std::string_view expected) const;

  template <typename T>
  Result<T> Require(std::string_view key, Result<std::optional<T>> found) const;
  template <typename T, typename Convert>
  Result<std::optional<T>> FindScalar(std::string_view key, std::string_view expected,
                                      Convert convert) const;
  template <typename T, typename Convert>
  Result<std::optional<std::vector<T>>> FindArray(std::string_view key, std::string_view expected,
                                                  Convert convert) const;

  std::string path_;
  uint32_t version_ = 0;
  size_t num_parts_ = 0;
  uint64_t file_bytes_ = 0;
  std::vector<MappedFile> files_;  // in part order; empty after Parse
  std::vector<MetadataEntry> metadata_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string_view, size_t> metadata_index_;
  std::map<std::string_view, size_t> tensor_index_;
};

}  // namespace kvern::model
