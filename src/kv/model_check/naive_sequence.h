// A sequence as it should be: its text, and for each group the bytes that its view must show.
//
// It follows a real Sequence call by call, writes the rows that a causal model would, and aborts
// with a finding where the real one shows something else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/model_check/content.h"
#include "kv/model_check/setup.h"
#include "kvern/kv.h"

namespace kvern::kv::model_check {

// Salts with which rows were ever written, by the prefix that they end.
using SaltsOfRows = std::unordered_map<uint64_t, std::vector<uint64_t>>;

class NaiveSequence {
 public:
  // Admitted for `prompt` with its first `num_tokens`. Rows may be of any of `salts`.
  NaiveSequence(const CacheSetup& setup, Text prompt, size_t num_tokens);
  // Finds out which of the contents that are right its rows have.
  void AdoptRows(const Sequence& real, const SaltsOfRows& salts);

  size_t length() const { return text_.size(); }
  const Text& text() const { return text_; }
  const Text& prompt() const { return prompt_; }
  size_t written() const { return salts_.size(); }
  const std::vector<uint64_t>& salts() const { return salts_; }

  // `tokens` were appended. Writes the new states.
  void Append(const Sequence& real, std::span<const TokenId> tokens);
  // Writes rows until `num_rows` are written.
  void WriteRows(const Sequence& real, size_t num_rows, SaltsOfRows& salts);
  void Commit(size_t num_tokens);
  void Truncate(size_t num_tokens);
  // Whether a Truncate() must succeed.
  bool CanTruncate(size_t num_tokens) const;

  // Every block that must be visible has the bytes that it must have.
  void CheckViews(const Sequence& real);

  size_t committed = 0;
  size_t published = 0;
  size_t promised = 0;       // tokens that the next Append() must take
  size_t announced_end = 0;  // others may wait for its prompt up to here; 0: for nothing
  int priority = 0;
  bool publishes = true;
  bool is_exposed = true;  // nothing of what it published was taken out of the tree
  bool was_forked = false;
  uint64_t salt = 0;  // of the rows that it writes

 private:
  struct Group {
    std::vector<std::byte> image;           // of its rows, block by block
    size_t low = 0;                         // a window shows positions from here on
    std::vector<size_t> required_states;    // positions that it must be able to go back to
    const std::byte* zero_state = nullptr;  // of position 0, if it was shown
  };

  void CheckRows(const PagedView& view, size_t index);
  void CheckPartialBlock(const std::byte* block, size_t index, size_t first) const;
  void CheckStates(const PagedView& view, size_t index);
  void PutRow(size_t index, size_t position, uint64_t salt);

  const CacheSetup* setup_;
  Text prompt_;
  Text text_;
  std::vector<uint64_t> salts_;  // of each written row
  size_t dirty_end_ = 0;         // rows before this one may hold what was there before a Truncate()
  std::vector<Group> groups_;
};

}  // namespace kvern::kv::model_check
