#include "kv/block_table.h"

#include <algorithm>
#include <utility>

namespace kvern::kv {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : BlockTable(other.pool_, other.group_, other.owner_, other.zero_) {
  *this = std::move(other);
}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(group_, other.group_);
  std::swap(block_tokens_, other.block_tokens_);
  std::swap(owner_, other.owner_);
  std::swap(zero_, other.zero_);
  std::swap(blocks_, other.blocks_);
  std::swap(addresses_, other.addresses_);
  std::swap(length_, other.length_);
  std::swap(committed_, other.committed_);
  std::swap(num_borrowed_, other.num_borrowed_);
  std::swap(first_held_, other.first_held_);
  std::swap(promise_, other.promise_);
  std::swap(num_rows_copied_, other.num_rows_copied_);
  return *this;
}

void BlockTable::Adopt(std::span<const BlockId> blocks, size_t first_held, bool borrowed) {
  CHECK(blocks_.empty() && (!borrowed || first_held == 0));
  blocks_.assign(blocks.begin(), blocks.end());
  addresses_.resize(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    addresses_[i] = i < first_held ? zero_ : pool_->Address(blocks[i]);
  }
  first_held_ = first_held;
  num_borrowed_ = borrowed ? blocks.size() : 0;
  length_ = committed_ = blocks.size() * block_tokens_;
}

void BlockTable::AdoptRows(std::optional<BlockId> source, size_t num_rows) {
  CHECK(length_ % block_tokens_ == 0);
  const BlockId copy = promise_.Take();
  PushBlock(copy, pool_->Address(copy));
  if (source) {
    pool_->store()->CopyRows(group_, addresses_.back(), pool_->Address(*source),
                             static_cast<uint32_t>(num_rows));
    num_rows_copied_ += num_rows;
  }
  length_ += num_rows;
  committed_ = length_;
}

void BlockTable::Borrow(size_t index, BlockId lent) {
  CHECK(index == num_borrowed_ && index < blocks_.size());
  blocks_[index] = lent;
  addresses_[index] = pool_->Address(lent);
  ++num_borrowed_;
}

void BlockTable::Replace(size_t index, BlockId block) {
  CHECK(IsHeld(index));
  pool_->Release(blocks_[index]);
  blocks_[index] = block;
  addresses_[index] = pool_->Address(block);
}

void BlockTable::Slide(size_t position) {
  const size_t end = std::min(position / block_tokens_, blocks_.size());
  for (; first_held_ < end; ++first_held_) {
    pool_->Release(blocks_[first_held_]);
    addresses_[first_held_] = zero_;
  }
}

Status BlockTable::Extend(size_t num_tokens) {
  if (ExtendInPlace(num_tokens)) return {};
  if (BlocksNeeded(num_tokens) > promise_.count()) KVERN_RETURN_IF_ERROR(Reserve(num_tokens));
  if (num_tokens > 0 && MustCopyLastBlock()) CopyLastBlock();
  length_ += num_tokens;
  while (blocks_.size() * block_tokens_ < length_) {
    const BlockId block = promise_.Take();
    PushBlock(block, pool_->Address(block));
  }
  promise_.Drop();
  return {};
}

void BlockTable::Commit(size_t length) {
  CHECK(committed_ <= length && length <= length_);
  committed_ = length;
}

void BlockTable::Truncate(size_t length) {
  CHECK(length <= length_);
  promise_.Drop();
  length_ = length;
  committed_ = std::min(committed_, length);
  const size_t num_blocks = BlocksFor(length);
  while (blocks_.size() > num_blocks) {
    if (IsHeld(blocks_.size() - 1)) pool_->Release(blocks_.back());
    blocks_.pop_back();
    addresses_.pop_back();
  }
  first_held_ = std::min(first_held_, num_blocks);
  const size_t num_whole = length / block_tokens_;
  if (num_borrowed_ <= num_whole) return;
  if (num_blocks > num_whole) pool_->Retain(blocks_.back());
  num_borrowed_ = num_whole;
}

bool BlockTable::CanTruncate(size_t length) const {
  const GroupSpec& spec = pool_->group(group_);
  const size_t first_seen = length + 1 - std::min<size_t>(length + 1, spec.window);
  return length == 0 || first_held_ == 0 || first_held_ * spec.block_tokens <= first_seen;
}

BlockTable BlockTable::Fork() {
  promise_.Drop();  // it did not count the copy that sharing the last block now costs
  BlockTable fork(pool_, group_, owner_, zero_);
  fork.blocks_ = blocks_;
  fork.addresses_ = addresses_;
  fork.length_ = length_;
  fork.committed_ = committed_;
  fork.num_borrowed_ = num_borrowed_;
  fork.first_held_ = first_held_;
  pool_->Retain(std::span(blocks_).subspan(std::max(num_borrowed_, first_held_)));
  return fork;
}

size_t BlockTable::BlocksFor(size_t num_tokens) const {
  return num_tokens / block_tokens_ + (num_tokens % block_tokens_ > 0);
}

size_t BlockTable::BlocksNeeded(size_t num_tokens) const {
  if (num_tokens == 0) return 0;
  const size_t end = length_ + num_tokens;
  const size_t num_new =
      end <= blocks_.size() * block_tokens_ ? 0 : BlocksFor(end) - blocks_.size();
  return num_new + MustCopyLastBlock();
}

void BlockTable::PushBlock(BlockId block, std::byte* address) {
  blocks_.push_back(block);
  addresses_.push_back(address);
}

void BlockTable::CopyLastBlock() {
  const size_t num_rows = length_ % block_tokens_;
  const BlockId copy = promise_.Take();
  std::byte* const address = pool_->Address(copy);
  pool_->store()->CopyRows(group_, address, addresses_.back(), static_cast<uint32_t>(num_rows));
  pool_->Release(blocks_.back());
  blocks_.back() = copy;
  addresses_.back() = address;
  num_rows_copied_ += num_rows;
}

void BlockTable::CheckInvariants() const {
  CHECK(committed_ <= length_);
  CHECK(blocks_.size() == BlocksFor(length_) && addresses_.size() == blocks_.size());
  CHECK(num_borrowed_ <= length_ / block_tokens_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (i < first_held_) {
      CHECK(addresses_[i] == zero_);
      continue;
    }
    CHECK(pool_->num_references(blocks_[i]) > 0);
    CHECK(pool_->Address(blocks_[i]) == addresses_[i]);
  }
}

}  // namespace kvern::kv
