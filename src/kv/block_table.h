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
// One writer thread for all tables of a pool. Move-only; destruction releases the blocks. The pool
// must outlive the table.
//
// Invariants, checked by CheckInvariants():
//   1. committed ≤ length, and the table has exactly ⌈length / block_tokens⌉ blocks.
//   2. It holds one reference to each.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/block_pool.h"
#include "kvern/paged_view.h"

namespace kvern::kv {

class BlockTable {
 public:
  BlockTable(BlockPool* pool, GroupId group) : pool_(pool), group_(group) {}
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { Release(); }

  // Promises every block that Extend(num_tokens) will take, the copy of a shared or published last
  // block included. Replaces an earlier promise; the next change of the table uses or drops it.
  // Errors: kOutOfMemory, and nothing has changed but that the earlier promise is gone.
  Status Reserve(size_t num_tokens);

  // Makes positions [length, length + num_tokens) writable and part of the sequence. Cannot fail
  // within what was reserved. Errors: kOutOfMemory, and length and contents have not changed.
  Status Extend(size_t num_tokens);

  // Declares positions [0, length) final. REQUIRES: committed() ≤ length ≤ this->length().
  void Commit(size_t length);

  // Forgets positions from `length` on (a rejected draft, an edited text); committed() follows.
  // REQUIRES: length ≤ this->length().
  void Truncate(size_t length);

  // Another sequence with the same history, sharing all blocks. O(blocks), no block is copied.
  [[nodiscard]] BlockTable Fork();

  // Truncate(0).
  void Release() { Truncate(0); }

  size_t length() const { return length_; }
  size_t committed() const { return committed_; }
  std::span<const BlockId> blocks() const { return blocks_; }

  // Pointers are valid until the table changes.
  PagedView View() const { return {addresses_.data(), static_cast<uint32_t>(addresses_.size())}; }

  // Rows that copy on write has copied, ever.
  size_t num_rows_copied() const { return num_rows_copied_; }

  // Aborts with a message if an invariant does not hold. For tests and debug builds.
  void CheckInvariants() const;

 private:
  size_t BlocksFor(size_t num_tokens) const;
  bool MustCopyLastBlock() const;
  // New blocks and the copy that `num_tokens` more would take.
  size_t BlocksNeeded(size_t num_tokens) const;
  void CopyLastBlock();
  void DropPromise();

  BlockPool* pool_;
  GroupId group_;
  std::vector<BlockId> blocks_;
  std::vector<std::byte*> addresses_;  // of blocks_, as kernels want them
  size_t length_ = 0;
  size_t committed_ = 0;
  size_t num_promised_ = 0;  // blocks
  size_t num_rows_copied_ = 0;
};

}  // namespace kvern::kv
