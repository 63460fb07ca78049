// BlockTable: one sequence's ordered list of blocks in one layer group, and its length.
//
// Positions [0, length) have room in the blocks and are, or are about to be, computed; positions
// [0, committed) are final: their step succeeded and no draft will be taken back. Blocks may be
// shared with other tables (Fork) or published; a table writes only blocks that it holds alone and
// that are not published, and copies any other before positions of it become writable (copy on
// write), so nothing that it does can change what another reads.
//
// One step: Reserve() promises all it needs or fails with nothing changed; Extend() makes room; the
// executor writes the new rows through View(); Commit() when the step has succeeded, Truncate() to
// take rows back.
//
// The first blocks may be borrowed: published, and kept alive by whoever lent them (a pinned path
// of the prefix tree), so that sharing a long history costs one reference and not one a block. A
// window group lets go of blocks that no query can see any more (Slide); they read as one zero
// block.
//
// One writer thread for all tables of a pool. Move-only; destruction releases the blocks. The pool
// must outlive the table.
//
// Invariants, checked by CheckInvariants():
//   1. committed ≤ length, and the table has exactly ⌈length / block_tokens⌉ blocks.
//   2. It holds one reference to each but the borrowed ones and those it slid past.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/block_promise.h"
#include "kvern/paged_view.h"

namespace kvern::kv {

class BlockTable {
 public:
  // `zero` is what blocks that a window slid past read as: needed by window groups alone.
  BlockTable(BlockPool* pool, GroupId group, OwnerId owner = {}, std::byte* zero = nullptr)
      : pool_(pool),
        group_(group),
        block_tokens_(pool->group(group).block_tokens),
        owner_(owner),
        zero_(zero),
        promise_(pool, group, owner) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { Release(); }

  // Becomes a sequence of `blocks.size()` whole, committed blocks. Those below `first_held` are
  // invisible. The others are borrowed, or held: then a reference to each passes to the table.
  // REQUIRES: the table is empty; a window group borrows nothing.
  void Adopt(std::span<const BlockId> blocks, size_t first_held, bool borrowed);

  // Adds the first `num_rows` of `source` as a copy of its own, committed; without a source, rows
  // that no query will see. Takes a promise. REQUIRES: no partly filled block is last.
  void AdoptRows(std::optional<BlockId> source, size_t num_rows);

  // The table's block `index` was published and its reference passes to the lender, who may have
  // another block of the same bytes: `lent`. Blocks are lent in order. REQUIRES: index is the
  // number of borrowed blocks.
  void Borrow(size_t index, BlockId lent);

  // Reads block `index` from another of the same bytes; a reference to it passes to the table, and
  // that to the old one ends. REQUIRES: the block is held.
  void Replace(size_t index, BlockId block);

  // Lets go of blocks wholly before `position`, once.
  void Slide(size_t position);

  // Promises every block that Extend(num_tokens) will take, the copy of a shared or published last
  // block included. Replaces an earlier promise; the next change of the table uses or drops it.
  // Errors: kOutOfMemory, and nothing has changed.
  Status Reserve(size_t num_tokens) { return Promise(BlocksNeeded(num_tokens)); }
  // The same, by the number of blocks.
  Status Promise(size_t num_blocks) { return promise_.Set(num_blocks); }

  // Makes positions [length, length + num_tokens) writable and part of the sequence. Cannot fail
  // within what was reserved. Errors: kOutOfMemory, and length and contents have not changed.
  Status Extend(size_t num_tokens);

  // Extend() where that takes no block and no promise is held, as for most decoded tokens; else
  // false, and nothing has changed.
  bool ExtendInPlace(size_t num_tokens) {
    const size_t capacity = blocks_.size() * block_tokens_;
    if (promise_.count() > 0 || length_ + num_tokens > capacity || MustCopyLastBlock())
      return false;
    length_ += num_tokens;
    return true;
  }

  // Declares positions [0, length) final. REQUIRES: committed() ≤ length ≤ this->length().
  void Commit(size_t length);

  // Forgets positions from `length` on (a rejected draft, an edited text); committed() follows.
  // A borrowed block that `length` cuts becomes held. REQUIRES: length ≤ this->length(), and what
  // the window slid past is not needed: CanTruncate().
  void Truncate(size_t length);

  // Whether every row that a query at `length` sees is still there.
  bool CanTruncate(size_t length) const;

  // Another sequence with the same history, sharing all blocks; the lender must take another
  // reference for what is borrowed. O(blocks), no block is copied.
  [[nodiscard]] BlockTable Fork();

  // Truncate(0).
  void Release() { Truncate(0); }

  size_t length() const { return length_; }
  size_t committed() const { return committed_; }
  size_t first_held() const { return first_held_; }
  size_t num_promised() const { return promise_.count(); }
  // Blocks that Extend(num_tokens) takes: new ones and the copy.
  size_t BlocksNeeded(size_t num_tokens) const;
  std::span<const BlockId> blocks() const { return blocks_; }

  // Pointers are valid until the table changes.
  PagedView View() const { return {addresses_.data(), static_cast<uint32_t>(addresses_.size())}; }

  // Rows that copy on write has copied, ever.
  size_t num_rows_copied() const { return num_rows_copied_; }

  // Aborts with a message if an invariant does not hold. For tests and debug builds.
  void CheckInvariants() const;

 private:
  size_t BlocksFor(size_t num_tokens) const;
  bool MustCopyLastBlock() const {
    return length_ < blocks_.size() * block_tokens_ && !pool_->is_writable(blocks_.back());
  }
  void PushBlock(BlockId block, std::byte* address);
  void CopyLastBlock();
  // Whether this table holds the reference to its block `index`.
  bool IsHeld(size_t index) const { return index >= std::max(num_borrowed_, first_held_); }

  BlockPool* pool_;
  GroupId group_;
  size_t block_tokens_;
  OwnerId owner_;
  std::byte* zero_;
  BlockPromise promise_;
  std::vector<BlockId> blocks_;
  std::vector<std::byte*> addresses_;  // of blocks_, as kernels want them
  size_t length_ = 0;
  size_t committed_ = 0;
  size_t num_borrowed_ = 0;  // blocks at the start
  size_t first_held_ = 0;    // blocks before it were slid past
  size_t num_rows_copied_ = 0;
};

}  // namespace kvern::kv
