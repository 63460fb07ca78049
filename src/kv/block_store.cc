#include "kv/block_store.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "base/result.h"

namespace kvern::kv {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

std::byte* Map(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// Maps more and gives the ends back, so that the first byte starts a huge page.
std::byte* MapHuge(size_t bytes, size_t page_bytes) {
  const size_t spare = kHugePageBytes - page_bytes;
  std::byte* const memory = Map(bytes + spare);
  if (memory == nullptr) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const size_t head = RoundUp(address, kHugePageBytes) - address;
  if (head > 0) munmap(memory, head);
  if (head < spare) munmap(memory + head + bytes, spare - head);
  madvise(memory + head, bytes, MADV_HUGEPAGE);  // advice: a kernel without huge pages ignores it
  return memory + head;
}

}  // namespace

void BlockStore::Read(std::span<std::byte> to, const std::byte* from) const {
  std::memcpy(to.data(), from, to.size());
}

void BlockStore::Write(std::byte* to, std::span<const std::byte> from) {
  std::memcpy(to, from.data(), from.size());
}

bool BlockStore::Equal(const std::byte* a, const std::byte* b, size_t bytes) const {
  return std::memcmp(a, b, bytes) == 0;
}

HostBlockStore::~HostBlockStore() { CHECK(bytes_held() == 0); }

Result<Region> HostBlockStore::Allocate(size_t bytes) {
  CHECK(bytes > 0);
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* memory = nullptr;
  if (bytes < SIZE_MAX / 2) {  // so that rounding cannot wrap
    bytes = RoundUp(bytes, page_bytes);
    memory = bytes < kHugePageBytes ? Map(bytes) : MapHuge(bytes, page_bytes);
  }
  if (memory == nullptr) {
    return Errorf(ErrorCode::kOutOfMemory,
                  "KV memory: the system refused {} bytes more, {} are held: use a smaller context",
                  bytes, bytes_held());
  }
  bytes_held_.fetch_add(bytes, std::memory_order_relaxed);
  return Region(memory, bytes);
}

void HostBlockStore::Free(Region region) {
  CHECK(munmap(region.data(), region.size()) == 0);
  bytes_held_.fetch_sub(region.size(), std::memory_order_relaxed);
}

void HostBlockStore::Zero(std::byte* to, size_t bytes) { std::memset(to, 0, bytes); }

void HostBlockStore::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void HostBlockStore::CopyRows(GroupId group, std::byte* to, const std::byte* from,
                              uint32_t num_tokens) {
  copy_rows_(group, to, from, num_tokens);
}

std::unique_ptr<BlockStore> MakeHostStore(CopyRowsFunction copy_rows) {
  return std::make_unique<HostBlockStore>(std::move(copy_rows));
}

}  // namespace kvern::kv
