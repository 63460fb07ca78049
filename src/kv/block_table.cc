#include "kv/block_table.h"

#include <algorithm>
#include <utility>

namespace kvern::kv {

BlockTable::BlockTable(BlockTable&& other) noexcept : BlockTable(other.pool_, other.group_) {
  *this = std::move(other);
}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(group_, other.group_);
  std::swap(blocks_, other.blocks_);
  std::swap(addresses_, other.addresses_);
  std::swap(length_, other.length_);
  std::swap(committed_, other.committed_);
  std::swap(num_promised_, other.num_promised_);
  std::swap(num_rows_copied_, other.num_rows_copied_);
  return *this;
}

Status BlockTable::Reserve(size_t num_tokens) {
  DropPromise();
  const size_t num_blocks = BlocksNeeded(num_tokens);
  KVERN_RETURN_IF_ERROR(pool_->Reserve(group_, num_blocks));
  num_promised_ = num_blocks;
  return {};
}

Status BlockTable::Extend(size_t num_tokens) {
  if (BlocksNeeded(num_tokens) > num_promised_) KVERN_RETURN_IF_ERROR(Reserve(num_tokens));
  if (num_tokens > 0 && MustCopyLastBlock()) CopyLastBlock();
  length_ += num_tokens;
  while (blocks_.size() < BlocksFor(length_)) {
    blocks_.push_back(pool_->Take(group_));
    addresses_.push_back(pool_->Address(blocks_.back()));
    --num_promised_;
  }
  DropPromise();
  return {};
}

void BlockTable::Commit(size_t length) {
  CHECK(committed_ <= length && length <= length_);
  committed_ = length;
}

void BlockTable::Truncate(size_t length) {
  CHECK(length <= length_);
  DropPromise();
  length_ = length;
  committed_ = std::min(committed_, length);
  while (blocks_.size() > BlocksFor(length)) {
    pool_->Release(blocks_.back());
    blocks_.pop_back();
    addresses_.pop_back();
  }
}

BlockTable BlockTable::Fork() {
  DropPromise();  // it did not count the copy that sharing the last block now costs
  BlockTable fork(pool_, group_);
  fork.blocks_ = blocks_;
  fork.addresses_ = addresses_;
  fork.length_ = length_;
  fork.committed_ = committed_;
  for (const BlockId block : blocks_) pool_->Retain(block);
  return fork;
}

size_t BlockTable::BlocksFor(size_t num_tokens) const {
  const size_t block_tokens = pool_->group(group_).block_tokens;
  return num_tokens / block_tokens + (num_tokens % block_tokens > 0);
}

bool BlockTable::MustCopyLastBlock() const {
  return length_ % pool_->group(group_).block_tokens > 0 && !pool_->is_writable(blocks_.back());
}

size_t BlockTable::BlocksNeeded(size_t num_tokens) const {
  if (num_tokens == 0) return 0;
  return BlocksFor(length_ + num_tokens) - blocks_.size() + MustCopyLastBlock();
}

void BlockTable::CopyLastBlock() {
  const size_t num_rows = length_ % pool_->group(group_).block_tokens;
  const BlockId copy = pool_->Take(group_);
  --num_promised_;
  std::byte* const address = pool_->Address(copy);
  pool_->store()->CopyRows(group_, address, addresses_.back(), static_cast<uint32_t>(num_rows));
  pool_->Release(blocks_.back());
  blocks_.back() = copy;
  addresses_.back() = address;
  num_rows_copied_ += num_rows;
}

void BlockTable::DropPromise() {
  if (num_promised_ == 0) return;
  pool_->Unreserve(group_, num_promised_);
  num_promised_ = 0;
}

void BlockTable::CheckInvariants() const {
  CHECK(committed_ <= length_);
  CHECK(blocks_.size() == BlocksFor(length_) && addresses_.size() == blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    CHECK(pool_->num_references(blocks_[i]) > 0);
    CHECK(pool_->Address(blocks_[i]) == addresses_[i]);
  }
}

}  // namespace kvern::kv
