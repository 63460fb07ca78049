// What the cache may find and what it must find, as a set of prefixes: too simple to be wrong.
//
// What was evicted is the cache's affair, so two sets are kept. `may` has everything that was ever
// published and not thrown away since; `must` what was published while nothing was lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "kv/model_check/content.h"
#include "kv/model_check/setup.h"

namespace kvern::kv::model_check {

enum class Certainty { kMay, kMust };

class NaiveIndex {
 public:
  // What a prefix may be known for.
  enum Kind : uint8_t {
    kRows = 1,   // its rows are in some block
    kBlock = 2,  // it ends with a whole block
    kState = 4,  // a state is valid exactly there
  };

  explicit NaiveIndex(const CacheSetup& setup);

  // The first `num_tokens` of `text` are cached from now on. `is_sure`: until Lost().
  void Add(const Text& text, size_t num_tokens, uint8_t kinds, bool is_sure);
  // What the first `num_tokens` were once known for may be found again.
  void Revive(const Text& text, size_t num_tokens);
  // Something was evicted: nothing is sure any more.
  void Lost();
  // Nothing is cached.
  void Forget();
  // Nothing was lost since the last Forget(): may and must are one, but for what was revived.
  bool is_intact() const { return is_intact_; }

  // The longest prefix of `prompt` that serves all groups, of at most `max_hit` tokens.
  size_t Longest(const Text& prompt, size_t max_hit, Certainty certainty) const;

  bool MayHave(uint64_t prefix, Kind kind) const;
  bool EverHad(uint64_t prefix, Kind kind) const;

 private:
  struct Entry {
    uint8_t may = 0;
    uint8_t must = 0;
    uint8_t ever = 0;
  };

  bool Has(uint64_t prefix, Kind kind, Certainty certainty) const;

  const size_t block_tokens_;
  bool is_row_independent_ = true;
  bool has_state_ = false;
  bool is_intact_ = true;
  std::unordered_map<uint64_t, Entry> entries_;
};

}  // namespace kvern::kv::model_check
