#include "kv/strategy/ledger.h"

#include <algorithm>

namespace kvern::kv {
namespace {

const GroupSpec& GroupOf(const CacheOptions& options) {
  return options.cache->options().groups[static_cast<size_t>(options.group)];
}

}  // namespace

Ledger::Ledger(CacheOptions options)
    : options_(std::move(options)),
      block_bytes_(GroupOf(options_).block_bytes),
      block_tokens_(GroupOf(options_).block_tokens) {}

size_t Ledger::BlocksFor(size_t num_tokens) const {
  return (num_tokens + block_tokens_ - 1) / block_tokens_;
}

Status Ledger::CheckContext(size_t length, size_t num_tokens) const {
  if (num_tokens <= options_.max_tokens - length) return {};
  return Errorf(ErrorCode::kOutOfMemory,
                "{} tokens do not fit after {}: the context holds {}: use a larger one or a "
                "shorter text",
                num_tokens, length, options_.max_tokens);
}

void Ledger::Allocated(size_t bytes, size_t num_blocks) {
  usage_.bytes_allocated += bytes;
  usage_.peak_bytes = std::max(usage_.peak_bytes, usage_.bytes_allocated);
  Tell(CacheEvent::Kind::kAllocate, bytes, num_blocks * block_tokens_);
}

void Ledger::Freed(size_t bytes, size_t num_blocks) {
  usage_.bytes_allocated -= bytes;
  Tell(CacheEvent::Kind::kFree, bytes, num_blocks * block_tokens_);
}

void Ledger::Copied(CacheEvent::Kind kind, size_t num_rows) {
  usage_.bytes_copied += BytesOfRows(num_rows);
  Tell(kind, BytesOfRows(num_rows), num_rows);
}

CacheUsage Ledger::Usage(size_t length) const {
  CacheUsage usage = usage_;
  usage.bytes_used = BytesOfRows(length);
  return usage;
}

void Ledger::Tell(CacheEvent::Kind kind, size_t bytes, size_t tokens) const {
  if (options_.on_event) options_.on_event({kind, bytes, tokens});
}

}  // namespace kvern::kv
