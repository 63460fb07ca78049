// StateTable: one sequence's recurrent states in one state group: a block per position that it can
// still go back to, oldest first.
//
// A state is never written twice: each step reads the last one and writes fresh zeroed blocks for
// the positions that it may be taken back to (all of a draft, the last one of a prefill chunk). So
// a committed state can be shared and published as it is. Position 0 has no block: it reads as the
// zero block.
//
// One writer thread. Move-only; destruction releases the blocks. The pool must outlive the table.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/block_pool.h"
#include "kv/block_promise.h"
#include "kvern/paged_view.h"

namespace kvern::kv {

class StateTable {
 public:
  StateTable(BlockPool* pool, GroupId group, OwnerId owner, std::byte* zero);
  StateTable(StateTable&& other) noexcept;
  StateTable& operator=(StateTable&&) = delete;
  ~StateTable() { Release(); }

  // Begins at `position` with a state whose reference passes to the table. REQUIRES: empty.
  void Adopt(size_t position, BlockId block);

  Status Promise(size_t num_blocks) { return promise_.Set(num_blocks); }
  size_t BlocksNeeded(size_t num_tokens) const;
  size_t num_promised() const { return promise_.count(); }

  // Fresh states for the last positions of [length, length + num_tokens]. REQUIRES: it is promised.
  void Extend(size_t num_tokens);

  // Forgets states that are more than max_rollback before `length`, but for the last of them.
  void Commit(size_t length);

  bool CanTruncate(size_t length) const;
  // REQUIRES: CanTruncate(length).
  void Truncate(size_t length);

  [[nodiscard]] StateTable Fork();
  void Release();

  // The committed state at exactly `position`, if the table has one.
  std::optional<BlockId> At(size_t position) const;
  // Reads the state at `position` from another block of the same bytes, whose reference passes
  // here.
  void Replace(size_t position, BlockId block);

  PagedView View() const { return {addresses_.data(), static_cast<uint32_t>(addresses_.size())}; }

 private:
  struct State {
    size_t position;
    std::optional<BlockId> block;  // none at position 0
  };

  void Push(size_t position, std::optional<BlockId> block);
  void DropFront();
  void DropBack();

  BlockPool* const pool_;
  const GroupId group_;
  const OwnerId owner_;
  std::byte* const zero_;
  BlockPromise promise_;
  std::vector<State> states_;  // at least one, ascending
  std::vector<std::byte*> addresses_;
};

}  // namespace kvern::kv
