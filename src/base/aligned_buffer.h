// AlignedBuffer: zeroed memory on a 64-byte boundary, asked to be in huge pages when it is large.
//
// Move-only owner. Not resident until touched. `bytes()` is exactly what was asked for, rounded up
// to 64; it is what accounting adds up.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace kvern {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Error: kOutOfMemory, with the number of bytes.
  static Result<AlignedBuffer> Create(size_t num_bytes);

  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // The buffer as an array of T, a plain type.
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kvern
