#include "kv/strategy/contiguous.h"

#include <algorithm>

namespace kvern::kv {

Result<size_t> ContiguousCache::Begin(std::span<const TokenId> tokens, size_t max_kept) {
  const std::span<const TokenId> own =
      std::span(tokens_).first(std::min(tokens_.size(), num_committed_));
  const auto common = std::ranges::mismatch(own, tokens).in1 - own.begin();
  Truncate(std::min(static_cast<size_t>(common), max_kept));
  return length_;
}

Status ContiguousCache::Extend(std::span<const TokenId> tokens) {
  CHECK(tokens_.size() == length_);
  KVERN_RETURN_IF_ERROR(Extend(tokens.size()));
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return {};
}

Status ContiguousCache::Extend(size_t num_tokens) {
  KVERN_RETURN_IF_ERROR(ledger_.CheckContext(length_, num_tokens));
  const size_t num_blocks = ledger_.BlocksFor(length_ + num_tokens);
  if (num_blocks > Capacity(region_)) KVERN_RETURN_IF_ERROR(Grow(num_blocks));
  while (addresses_.size() < num_blocks) {
    const size_t block = addresses_.size();
    addresses_.push_back(region_.data() + block * ledger_.block_bytes());
    if (block < num_dirty_) store()->Zero(addresses_.back(), ledger_.block_bytes());
  }
  num_dirty_ = std::max(num_dirty_, num_blocks);
  length_ += num_tokens;
  return {};
}

void ContiguousCache::Truncate(size_t length) {
  CHECK(length <= length_);
  length_ = length;
  num_committed_ = std::min(num_committed_, length);
  if (tokens_.size() > length) tokens_.resize(length);
  addresses_.resize(ledger_.BlocksFor(length));
  if (length > 0 || !policy_.frees_when_empty) return;
  FreeRegion(region_);
  region_ = {};
  num_dirty_ = 0;
}

Result<std::unique_ptr<SequenceCache>> ContiguousCache::Fork() {
  auto fork = std::make_unique<ContiguousCache>(ledger_.options(), policy_);
  KVERN_RETURN_IF_ERROR(fork->Extend(length_));
  fork->num_committed_ = num_committed_;
  fork->tokens_ = tokens_;
  if (length_ > 0) {
    store()->Copy(fork->region_.data(), region_.data(), addresses_.size() * ledger_.block_bytes());
    fork->ledger_.Copied(CacheEvent::Kind::kGrowCopy, length_);
  }
  return std::unique_ptr<SequenceCache>(std::move(fork));
}

Status ContiguousCache::Grow(size_t num_blocks) {
  const size_t limit = ledger_.BlocksFor(ledger_.options().max_tokens);
  const size_t capacity = policy_.grow(Capacity(region_), num_blocks, limit);
  KVERN_ASSIGN_OR_RETURN(const Region larger, store()->Allocate(capacity * ledger_.block_bytes()));
  ledger_.Allocated(larger.size(), Capacity(larger));
  if (length_ > 0) {
    store()->Copy(larger.data(), region_.data(), addresses_.size() * ledger_.block_bytes());
    ledger_.Copied(CacheEvent::Kind::kGrowCopy, length_);
  }
  FreeRegion(region_);
  region_ = larger;
  for (size_t i = 0; i < addresses_.size(); ++i) {
    addresses_[i] = region_.data() + i * ledger_.block_bytes();
  }
  num_dirty_ = addresses_.size();
  return {};
}

void ContiguousCache::FreeRegion(Region region) {
  if (region.empty()) return;
  store()->Free(region);
  ledger_.Freed(region.size(), Capacity(region));
}

}  // namespace kvern::kv
