// HostBlockStore: blocks in anonymous host memory (kvern/kv_store.h: MakeHostStore).
#pragma once

#include <atomic>
#include <utility>

#include "kvern/kv_store.h"

namespace kvern::kv {

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
