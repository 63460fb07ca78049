// What the tests of the library share: a layout to write rows in, and a store that can refuse.
//
// A test block is transposed like real K: token t owns every byte i with i mod 16 = t.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <optional>

#include "base/result.h"
#include "kv/block_store.h"

namespace kvern::kv {

inline std::byte RowByte(uint64_t content, size_t i) {
  return std::byte(((content * 0x9E3779B97F4A7C15u) >> (i / kBlockTokens % 8 * 8)) & 0xFF);
}

inline void WriteRow(std::byte* block, size_t block_bytes, size_t position, uint64_t content) {
  for (size_t i = position % kBlockTokens; i < block_bytes; i += kBlockTokens) {
    block[i] = RowByte(content, i);
  }
}

inline bool HasRow(const std::byte* block, size_t block_bytes, size_t position, uint64_t content) {
  for (size_t i = position % kBlockTokens; i < block_bytes; i += kBlockTokens) {
    if (block[i] != RowByte(content, i)) return false;
  }
  return true;
}

// Every one of `bytes` (> 0) equals `fill`. One memcmp, because sanitizers make loops slow.
inline bool IsFilled(const std::byte* begin, size_t bytes, std::byte fill) {
  return begin[0] == fill && std::memcmp(begin, begin + 1, bytes - 1) == 0;
}

inline bool IsZero(const std::byte* begin, size_t bytes) {
  return IsFilled(begin, bytes, std::byte{0});
}

// Exact sizes from the heap, so that sanitizers see every byte outside. Refuses the call after
// `refuse_after` more, if set.
class TestStore final : public BlockStore {
 public:
  explicit TestStore(size_t block_bytes) : block_bytes_(block_bytes) {}
  ~TestStore() override { CHECK(regions_.empty()); }

  std::optional<size_t> refuse_after;
  size_t num_refused = 0;

  Result<Region> Allocate(size_t bytes) override {
    if (refuse_after && (*refuse_after)-- == 0) {
      refuse_after.reset();
      ++num_refused;
      return Errorf(ErrorCode::kOutOfMemory, "refused for the test");
    }
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, bytes));
    std::memset(memory, 0, bytes);
    regions_[memory] = bytes;
    bytes_held_ += bytes;
    return Region(memory, bytes);
  }

  void Free(Region region) override {
    const auto entry = regions_.find(region.data());
    CHECK(entry != regions_.end() && entry->second == region.size());
    regions_.erase(entry);
    bytes_held_ -= region.size();
    std::free(region.data());
  }

  void Zero(std::byte* to, size_t bytes) override { std::memset(to, 0, bytes); }
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void CopyRows(GroupId, std::byte* to, const std::byte* from, uint32_t num_tokens) override {
    for (size_t i = 0; i < block_bytes_; ++i) {
      if (i % kBlockTokens < num_tokens) to[i] = from[i];
    }
  }
  size_t bytes_held() const override { return bytes_held_; }

  // The start of the region that an address is in.
  const std::byte* RegionOf(const std::byte* address) const {
    return std::prev(regions_.upper_bound(const_cast<std::byte*>(address)))->first;
  }

 private:
  const size_t block_bytes_;
  std::map<std::byte*, size_t> regions_;
  size_t bytes_held_ = 0;
};

}  // namespace kvern::kv
