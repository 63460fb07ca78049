// BlockStore: the memory that blocks lie in, and the only code that touches their bytes.
//
// The pool and the strategies decide which bytes live where; a store gets, clears and copies them.
// Host memory is below; an engine with device memory supplies its own (addresses are then the
// device's, and nobody but the store may follow them).
//
// One writer thread calls everything; bytes_held() may be read from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/result.h"
#include "kv/group_spec.h"

namespace kvern::kv {

// A run of memory of one store, at a fixed address until it is freed.
using Region = std::span<std::byte>;

class BlockStore {
 public:
  virtual ~BlockStore() = default;

  // A region of at least `bytes` (> 0), all zeros, aligned to kBlockAlignment. Its size is what the
  // store really took, rounding included. Errors: kOutOfMemory, and nothing has changed.
  virtual Result<Region> Allocate(size_t bytes) = 0;

  // Gives back a region that Allocate() returned, whole.
  virtual void Free(Region region) = 0;

  virtual void Zero(std::byte* to, size_t bytes) = 0;
  virtual void Copy(std::byte* to, const std::byte* from, size_t bytes) = 0;

  // Copies the rows of the first `num_tokens` of one block of `group` into another that is zeroed.
  virtual void CopyRows(GroupId group, std::byte* to, const std::byte* from,
                        uint32_t num_tokens) = 0;

  // The sum of the sizes of all regions not yet freed.
  virtual size_t bytes_held() const = 0;
};

// Copies the rows of the first `num_tokens` of a block: the engine's, because only the engine knows
// where in a block a row lies (K is stored transposed).
using CopyRowsFunction =
    std::function<void(GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens)>;

// Anonymous host memory from the operating system: whole pages, resident only once written, huge
// pages asked for from 2 MiB on.
class HostBlockStore final : public BlockStore {
 public:
  explicit HostBlockStore(CopyRowsFunction copy_rows) : copy_rows_(std::move(copy_rows)) {}
  // REQUIRES: every region was freed.
  ~HostBlockStore() override;
  HostBlockStore(const HostBlockStore&) = delete;
  HostBlockStore& operator=(const HostBlockStore&) = delete;

  Result<Region> Allocate(size_t bytes) override;
  void Free(Region region) override;
  void Zero(std::byte* to, size_t bytes) override;
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void CopyRows(GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens) override;
  size_t bytes_held() const override { return bytes_held_.load(std::memory_order_relaxed); }

 private:
  const CopyRowsFunction copy_rows_;
  std::atomic<size_t> bytes_held_{0};
};

}  // namespace kvern::kv
