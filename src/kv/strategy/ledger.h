// Ledger: what the memory of one cache did, counted and told to the trace in the same breath.
//
// Shared by the strategies, so that usage() and the events cannot disagree. Thread-compatible.
#pragma once

#include <cstddef>
#include <utility>

#include "base/result.h"
#include "kv/sequence_cache.h"
#include "kv/strategy.h"

namespace kvern::kv {

class Ledger {
 public:
  explicit Ledger(CacheOptions options);

  // Blocks that `num_tokens` fill, the last one perhaps partly.
  size_t BlocksFor(size_t num_tokens) const;

  // An error if `length` + `num_tokens` is more than the context.
  Status CheckContext(size_t length, size_t num_tokens) const;

  void Allocated(size_t bytes, size_t num_blocks);
  void Freed(size_t bytes, size_t num_blocks);
  void Copied(CacheEvent::Kind kind, size_t num_rows);

  CacheUsage Usage(size_t length) const;

  const CacheOptions& options() const { return options_; }
  size_t block_bytes() const { return block_bytes_; }
  size_t block_tokens() const { return block_tokens_; }

 private:
  void Tell(CacheEvent::Kind kind, size_t bytes, size_t tokens) const;
  size_t BytesOfRows(size_t num_rows) const { return num_rows * block_bytes_ / block_tokens_; }

  const CacheOptions options_;
  const size_t block_bytes_;
  const size_t block_tokens_;
  CacheUsage usage_;  // all but bytes_used
};

}  // namespace kvern::kv
