// Snapshot<T>: a value that one thread writes and any thread reads, always whole.
//
// Wait-free for the writer; a reader retries while a write is under way. T is trivially copyable
// and made of 64-bit words.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace kvern::kv {

template <typename T>
class Snapshot {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(uint64_t) == 0);

 public:
  // The writer's.
  void Write(const T& value) {
    const auto words = std::bit_cast<Words>(value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);  // odd: a write is under way
    // Release: who sees a new word also sees the odd version.
    for (size_t i = 0; i < kNumWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  T Read() const {
    Words words;
    uint64_t before, after;
    do {
      before = version_.load(std::memory_order_acquire);
      for (size_t i = 0; i < kNumWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
      after = version_.load(std::memory_order_relaxed);
    } while (before != after || before % 2 != 0);
    return std::bit_cast<T>(words);
  }

 private:
  static constexpr size_t kNumWords = sizeof(T) / sizeof(uint64_t);
  using Words = std::array<uint64_t, kNumWords>;

  std::atomic<uint64_t> version_{0};
  std::array<std::atomic<uint64_t>, kNumWords> words_{};
};

}  // namespace kvern::kv
