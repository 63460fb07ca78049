// ContiguousCache: all blocks of a sequence side by side in one region of the store.
//
// When the region is too small, a larger one is allocated, the blocks are copied, and the old one
// is freed: both exist for that moment, and peak_bytes says so. The strategies built on it differ
// only in a ContiguousPolicy.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv/strategy/ledger.h"

namespace kvern::kv {

struct ContiguousPolicy {
  // Blocks that the next region gets. `capacity` < `needed` ≤ result; `limit` is the context.
  size_t (*grow)(size_t capacity, size_t needed, size_t limit);
  bool frees_when_empty;  // Truncate(0) gives the region back
};

class ContiguousCache final : public SequenceCache {
 public:
  ContiguousCache(CacheOptions options, ContiguousPolicy policy)
      : ledger_(std::move(options)), policy_(policy) {}
  ~ContiguousCache() override { FreeRegion(region_); }
  ContiguousCache(const ContiguousCache&) = delete;
  ContiguousCache& operator=(const ContiguousCache&) = delete;

  Result<size_t> Begin(std::span<const TokenId> tokens, size_t max_kept) override;
  Status Extend(std::span<const TokenId> tokens) override;
  Status Extend(size_t num_tokens) override;
  void Commit() override { num_committed_ = length_; }
  void Truncate(size_t length) override;
  Result<std::unique_ptr<SequenceCache>> Fork() override;
  PagedView View() const override {
    return {addresses_.data(), static_cast<uint32_t>(addresses_.size())};
  }
  size_t length() const override { return length_; }
  CacheUsage usage() const override { return ledger_.Usage(length_); }

 private:
  size_t Capacity(Region region) const { return region.size() / ledger_.block_bytes(); }
  Status Grow(size_t num_blocks);
  void FreeRegion(Region region);
  BlockStore* store() const { return ledger_.options().store; }

  Ledger ledger_;
  const ContiguousPolicy policy_;
  Region region_;
  std::vector<std::byte*> addresses_;  // of the blocks in use
  size_t num_dirty_ = 0;               // blocks of the region that have ever been in use
  size_t length_ = 0;
  size_t num_committed_ = 0;     // rows
  std::vector<TokenId> tokens_;  // of the rows, as far as it was told
};

}  // namespace kvern::kv
