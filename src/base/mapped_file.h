// MappedFile: a whole file, read-only, in memory without a copy.
//
// Movable; unmapped when destroyed. The bytes stay valid as long as the object lives. A file that
// another process truncates while mapped makes reads fault: do not edit models in use.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/result.h"

namespace kvern {

class MappedFile {
 public:
  // Errors: kNotFound, kIo (named with the path).
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the kernel that [offset, offset + length) will not be read again, so that it does not
  // count as resident. Rounded inwards to pages.
  void Discard(size_t offset, size_t length) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size);

  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Reads a whole file, for text that people pass. Errors: kNotFound, kIo.
Result<std::string> ReadTextFile(const std::string& path);

// Creates or replaces a file. Errors: kIo, naming the path and the reason.
Status WriteTextFile(const std::string& path, const std::string& text);

}  // namespace kvern
