#include "kv/model_check/naive_index.h"

#include <algorithm>

namespace kvern::kv::model_check {

NaiveIndex::NaiveIndex(const CacheSetup& setup) : block_tokens_(setup.block_tokens()) {
  for (const GroupSpec& group : setup.groups) {
    is_row_independent_ &= group.row_independent;
    has_state_ |= group.kind == GroupKind::kState;
  }
}

void NaiveIndex::Add(const Text& text, size_t num_tokens, uint8_t kinds, bool is_sure) {
  Entry& entry = entries_[text.prefix(num_tokens)];
  entry.may |= kinds;
  entry.ever |= kinds;
  if (is_sure && is_intact_) entry.must |= kinds;
}

void NaiveIndex::Revive(const Text& text, size_t num_tokens) {
  for (size_t i = 1; i <= num_tokens; ++i) {
    if (const auto entry = entries_.find(text.prefix(i)); entry != entries_.end()) {
      entry->second.may |= entry->second.ever;
    }
  }
}

void NaiveIndex::Lost() {
  if (!is_intact_) return;
  is_intact_ = false;
  for (auto& [prefix, entry] : entries_) entry.must = 0;
}

void NaiveIndex::Forget() {
  is_intact_ = true;
  for (auto& [prefix, entry] : entries_) entry.may = entry.must = 0;
}

size_t NaiveIndex::Longest(const Text& prompt, size_t max_hit, Certainty certainty) const {
  size_t length = 0;
  while (length + block_tokens_ <= prompt.size() &&
         Has(prompt.prefix(length + block_tokens_), kBlock, certainty)) {
    length += block_tokens_;
  }
  if (is_row_independent_) {
    const size_t end = std::min(prompt.size(), length + block_tokens_ - 1);
    while (length < end && Has(prompt.prefix(length + 1), kRows, certainty)) ++length;
  }
  length = std::min(length, max_hit);
  if (!is_row_independent_) length -= length % block_tokens_;
  while (has_state_ && length > 0 && !Has(prompt.prefix(length), kState, certainty)) --length;
  return length;
}

bool NaiveIndex::MayHave(uint64_t prefix, Kind kind) const {
  return Has(prefix, kind, Certainty::kMay);
}

bool NaiveIndex::EverHad(uint64_t prefix, Kind kind) const {
  const auto entry = entries_.find(prefix);
  return entry != entries_.end() && (entry->second.ever & kind) != 0;
}

bool NaiveIndex::Has(uint64_t prefix, Kind kind, Certainty certainty) const {
  const auto entry = entries_.find(prefix);
  if (entry == entries_.end()) return false;
  return ((certainty == Certainty::kMay ? entry->second.may : entry->second.must) & kind) != 0;
}

}  // namespace kvern::kv::model_check
