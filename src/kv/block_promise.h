// BlockPromise: blocks of one group that a pool has promised to one holder, who takes them or gives
// the promise back; destruction gives back what is left. They are charged to one owner.
//
// The pool's writer thread. Move-only. The pool must outlive it.
#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "kv/block_pool.h"

namespace kvern::kv {

class BlockPromise {
 public:
  BlockPromise(BlockPool* pool, GroupId group, OwnerId owner)
      : pool_(pool), group_(group), owner_(owner) {}
  BlockPromise(BlockPromise&& other) noexcept
      : pool_(other.pool_),
        group_(other.group_),
        owner_(other.owner_),
        count_(std::exchange(other.count_, 0)) {}
  BlockPromise& operator=(BlockPromise&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(group_, other.group_);
    std::swap(owner_, other.owner_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~BlockPromise() { Drop(); }

  // Makes the promise one of `num_blocks`, more or fewer than before. Errors: kOutOfMemory, and
  // nothing has changed.
  Status Set(size_t num_blocks) {
    if (num_blocks > count_) {
      KVERN_RETURN_IF_ERROR(pool_->Reserve(group_, num_blocks - count_, owner_));
    } else if (num_blocks < count_) {
      pool_->Unreserve(group_, count_ - num_blocks, owner_);
    }
    count_ = num_blocks;
    return {};
  }

  void Drop() {
    if (count_ > 0) CHECK(Set(0).ok());
  }

  // REQUIRES: count() > 0.
  BlockId Take() {
    CHECK(count_ > 0);
    --count_;
    return pool_->Take(group_, owner_);
  }

  size_t count() const { return count_; }

 private:
  BlockPool* pool_;
  GroupId group_;
  OwnerId owner_;
  size_t count_ = 0;
};

}  // namespace kvern::kv
