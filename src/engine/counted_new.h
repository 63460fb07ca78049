// Counts what is allocated, in a program of its own: it replaces operator new. For one source of
// the program.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace kvern::engine {

inline std::atomic<bool> is_counting{true};
inline std::atomic<size_t> num_allocations{0};

inline void* CountedAllocation(size_t bytes, size_t alignment) {
  if (is_counting) num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) != 0) std::abort();
  return memory;
}

}  // namespace kvern::engine

void* operator new(size_t bytes) { return kvern::engine::CountedAllocation(bytes, 1); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return kvern::engine::CountedAllocation(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
