// An engine for tests of KvCache: texts of small tokens, rows that tell which text they are of.
//
// Row t of a text holds a hash of its namespace and tokens [0, t], as a causal model's would, so
// that a block in the wrong place shows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "kv/test_support.h"
#include "kvern/kv.h"

namespace kvern::kv {

using Text = std::vector<TokenId>;

// A token for each character.
inline Text MakeText(std::string_view letters) {
  Text text;
  for (const char letter : letters) text.push_back(TokenId{static_cast<uint32_t>(letter)});
  return text;
}

inline Text MakeText(size_t num_tokens, uint32_t first = 0) {
  Text text(num_tokens);
  for (size_t i = 0; i < num_tokens; ++i) text[i] = TokenId{first + static_cast<uint32_t>(i)};
  return text;
}

inline uint64_t RowContent(NamespaceId ns, std::span<const TokenId> text, size_t position) {
  return Hash64(std::as_bytes(text.first(position + 1)), static_cast<uint64_t>(ns) + 1) | 1;
}

class TestEngine {
 public:
  static constexpr size_t kBlockBytes = 128;

  explicit TestEngine(size_t num_blocks, KvCacheOptions options = {}) : store(kBlockBytes) {
    if (options.groups.empty()) options.groups = {FullGroup()};
    if (options.budget_bytes == 0) options.budget_bytes = num_blocks * kBlockBytes;
    if (options.min_slab_bytes == KvCacheOptions().min_slab_bytes) {
      options.min_slab_bytes = kBlockBytes;
    }
    auto made = KvCache::Make(std::move(options), &store);
    CHECK(made.ok());
    cache = std::move(made).value();
    ns = *cache->OpenNamespace({});
  }

  static GroupSpec FullGroup() { return {.block_bytes = kBlockBytes}; }
  static GroupSpec WindowGroup(uint32_t window, uint32_t max_rollback = 0) {
    return {.kind = GroupKind::kWindow,
            .window = window,
            .block_bytes = kBlockBytes,
            .max_rollback = max_rollback};
  }

  static GroupSpec StateGroup(uint32_t max_rollback = 0) {
    return {.kind = GroupKind::kState, .block_bytes = kBlockBytes, .max_rollback = max_rollback};
  }

  // The text must outlive the lease.
  Lease Lookup(const Text& text) { return cache->Lookup({.ns = ns, .tokens = text}); }

  // Admits a lease whose memory must suffice.
  Sequence Admit(Lease lease, const AdmitOptions& options = {}) {
    auto sequence = cache->Admit(lease, options);
    CHECK(sequence.ok());
    return std::move(sequence).value();
  }

  // Computes the text's tokens from the sequence's length to `end`.
  Status Compute(Sequence& sequence, const Text& text, size_t end) {
    const size_t begin = sequence.length();
    const Status status = sequence.Append(std::span(text).subspan(begin, end - begin));
    if (status.ok()) Write(sequence, text, begin, end);
    return status;
  }

  void Write(Sequence& sequence, const Text& text, size_t begin, size_t end) {
    for (size_t group = 0; group < cache->options().groups.size(); ++group) {
      const PagedView view = sequence.View(static_cast<GroupId>(group));
      if (IsState(group)) {
        WriteStates(view, cache->options().groups[group].max_rollback, text, begin, end);
        continue;
      }
      for (size_t t = begin; t < end; ++t) {
        WriteRow(view.blocks[t / kBlockTokens], kBlockBytes, t, RowContent(ns, text, t));
      }
    }
  }

  // Computes and commits up to `end`, whose memory must suffice.
  void Step(Sequence& sequence, const Text& text, size_t end) {
    CHECK(Compute(sequence, text, end).ok());
    sequence.Commit(end);
  }

  // The same, block by block, so that a state is published at the end of each.
  void StepByBlocks(Sequence& sequence, const Text& text) {
    while (sequence.length() < text.size()) {
      const size_t next = (sequence.length() / kBlockTokens + 1) * kBlockTokens;
      Step(sequence, text, std::min(next, text.size()));
    }
  }

  // A sequence that has computed and committed all of `text`.
  Sequence Run(const Text& text, const AdmitOptions& options = {}) {
    Sequence sequence = Admit(Lookup(text), options);
    if (sequence.length() < text.size()) Step(sequence, text, text.size());
    return sequence;
  }

  // Whether the sequence's visible rows below `end`, or its state there, are those of `text`.
  bool Holds(const Sequence& sequence, const Text& text, size_t end, GroupId group = {}) const {
    const PagedView view = sequence.View(group);
    if (IsState(static_cast<size_t>(group))) {
      return HasState(view.blocks[view.num_blocks - 1], RowContent(ns, text, end - 1));
    }
    const uint32_t window = cache->options().groups[static_cast<size_t>(group)].window;
    for (size_t t = window == 0 || end < window ? 0 : end - window + 1; t < end; ++t) {
      if (!HasRow(view.blocks[t / kBlockTokens], kBlockBytes, t, RowContent(ns, text, t))) {
        return false;
      }
    }
    return true;
  }

  bool HoldsAll(const Sequence& sequence, const Text& text, size_t end) const {
    for (size_t group = 0; group < cache->options().groups.size(); ++group) {
      if (!Holds(sequence, text, end, static_cast<GroupId>(group))) return false;
    }
    return true;
  }

  // Forgets all cached text. True if nothing but the zero blocks is in use then.
  bool IsEmptyOnceDropped() {
    cache->DropCached();
    cache->CheckInvariants();
    size_t zero_bytes = 0;
    for (const GroupSpec& group : cache->options().groups) {
      if (group.kind != GroupKind::kFull) zero_bytes += group.block_bytes;
    }
    const StateCounts left = bytes();
    return left.active == zero_bytes && left.cached == 0 && left.reserved == 0;
  }

  StateCounts bytes() const { return cache->stats().bytes; }

  TestStore store;
  std::unique_ptr<KvCache> cache;
  NamespaceId ns{};

 private:
  bool IsState(size_t group) const {
    return cache->options().groups[group].kind == GroupKind::kState;
  }

  static bool HasState(const std::byte* block, uint64_t content) {
    for (size_t row = 0; row < kBlockTokens; ++row) {
      if (!HasRow(block, kBlockBytes, row, content)) return false;
    }
    return true;
  }

  // The last blocks are the states of the last positions: as many as the step may be taken back.
  void WriteStates(const PagedView& view, size_t max_rollback, const Text& text, size_t begin,
                   size_t end) {
    const size_t num_states = std::min(end - begin, max_rollback + 1);
    for (size_t back = 0; back < num_states; ++back) {
      std::byte* const block = view.blocks[view.num_blocks - 1 - back];
      for (size_t row = 0; row < kBlockTokens; ++row) {
        WriteRow(block, kBlockBytes, row, RowContent(ns, text, end - back - 1));
      }
    }
  }
};

}  // namespace kvern::kv
