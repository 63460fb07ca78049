// NgramIndex: where the last few tokens of one text stood before.
//
// For each run of 2, 3 or 4 tokens it keeps the latest place where the text went on after it. It
// holds positions only, so the text is passed in each time, and may only have grown since. Memory
// is a table that doubles with the text up to kMaxBytes; longer texts push out what was long ago.
// Growing by a token takes constant time, amortised.
//
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvern/ids.h"

namespace kvern::engine {

class NgramIndex {
 public:
  static constexpr size_t kMaxBytes = 1 << 20;

  // Takes in what the text has grown by.
  // REQUIRES: `text` begins with that of the last call; fewer than 2³⁰ tokens.
  void Update(std::span<const TokenId> text);

  // The position after the latest earlier occurrence of the longest run that the text ends with and
  // that occurred before; below text.size(). REQUIRES: Update(text) was the last call.
  std::optional<size_t> FindContinuation(std::span<const TokenId> text) const;

  size_t num_tokens() const { return num_tokens_; }
  size_t bytes() const { return slots_.capacity() * sizeof(uint32_t); }

 private:
  // A run of `length` tokens, by the position after it. Packed into a slot; 0 is an empty slot.
  struct Run {
    size_t end;
    size_t length;
  };
  static uint32_t Pack(Run run) { return static_cast<uint32_t>(run.end << 2 | (run.length - 1)); }
  static Run Unpack(uint32_t slot) { return {slot >> 2, (slot & 3) + 1}; }

  void Grow(std::span<const TokenId> text);
  void Insert(std::span<const TokenId> text, Run run);
  std::optional<size_t> Find(std::span<const TokenId> text, Run run) const;

  size_t num_tokens_ = 0;
  std::vector<uint32_t> slots_;  // open addressing, a power of two of them
};

}  // namespace kvern::engine
