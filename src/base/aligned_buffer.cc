#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace kvern {

Result<AlignedBuffer> AlignedBuffer::Create(size_t num_bytes) {
  AlignedBuffer buffer;
  if (num_bytes == 0) return buffer;
  const size_t rounded = (num_bytes + 63) / 64 * 64;
  void* data = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return Errorf(ErrorCode::kOutOfMemory, "the operating system refused {} bytes: {}", rounded,
                  std::strerror(errno));
  }
  constexpr size_t kHugePage = size_t{2} << 20;
  if (rounded >= 2 * kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = rounded;
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept { *this = std::move(other); }

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace kvern
