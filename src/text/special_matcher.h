// SpecialMatcher: finds special tokens in text.
//
// Where tokens overlap the longest in the whole text wins, then the lower id, then the leftmost:
// llama.cpp looks for one token after the other, long ones first, and this gives the same cuts in
// one pass. Time is linear in the text, times the length of the longest special token.
//
// Immutable after construction: safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvern/ids.h"

namespace kvern::text {

class SpecialMatcher {
 public:
  struct Special {
    std::string text;  // not empty
    TokenId id;
    bool strips_after = false;  // the white space behind it goes with it
  };
  explicit SpecialMatcher(std::vector<Special> specials);

  struct Match {
    TokenId id;
    size_t begin;
    size_t end;  // what was stripped included
  };
  // In text order, not overlapping.
  std::vector<Match> Find(std::string_view text) const;

 private:
  struct Entry {
    Special special;
    std::optional<size_t> shorter;  // the longest other entry that this one begins with
  };

  // The longest entry that `text` begins with.
  std::optional<size_t> LongestAt(std::string_view text) const;

  std::vector<Entry> entries_;  // by text, bytewise
  std::array<std::pair<size_t, size_t>, 256> range_of_first_byte_{};
  size_t max_length_ = 0;
};

}  // namespace kvern::text
