#include "kv/tier/memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kv/tier.h"

namespace kvern::kv {

size_t MemoryTier::KeyHash::operator()(const TierKey& key) const {
  size_t hash;
  std::memcpy(&hash, key.data(), sizeof(hash));
  return hash;
}

MemoryTier::MemoryTier(const MemoryTierOptions& options)
    : options_(options), random_(options.seed) {
  CHECK(1 <= options.min_latency_polls && options.min_latency_polls <= options.max_latency_polls);
}

void MemoryTier::StartLoad(TierTicket ticket, const TierKey& key, std::span<std::byte> into) {
  Start({.ticket = ticket, .key = key, .into = into, .is_load = true});
}

void MemoryTier::StartStore(TierTicket ticket, const TierKey& key,
                            std::span<const std::byte> record) {
  Start({.ticket = ticket, .key = key, .record = record, .is_load = false});
}

void MemoryTier::Start(Operation operation) {
  for (const Operation& other : under_way_) CHECK(other.ticket != operation.ticket);
  if (const auto planned = faults_.find(num_operations_); planned != faults_.end()) {
    operation.fault = planned->second;
    faults_.erase(planned);
  }
  ++num_operations_;
  const uint64_t spread = options_.max_latency_polls - options_.min_latency_polls + 1;
  operation.due = num_polls_ + options_.min_latency_polls + random_.Below(spread);
  under_way_.push_back(operation);
}

void MemoryTier::Cancel(TierTicket ticket) {
  for (Operation& operation : under_way_) {
    if (operation.ticket != ticket || random_.Below(2) == 0) continue;
    operation.is_cancelled = true;
    operation.due = num_polls_;
  }
}

void MemoryTier::Stall(std::optional<uint64_t> num_polls) {
  is_stalled_ = true;
  num_stalled_polls_left_ = num_polls;
}

void MemoryTier::Poll(std::vector<TierCompletion>& completions) {
  if (is_stalled_ && num_stalled_polls_left_ && (*num_stalled_polls_left_)-- == 0) Resume();
  if (is_stalled_) return;
  ++num_polls_;
  for (const Operation& operation : TakeDue()) {
    completions.push_back({.ticket = operation.ticket, .bytes = Complete(operation)});
  }
}

std::vector<MemoryTier::Operation> MemoryTier::TakeDue() {
  std::vector<Operation> due, rest;
  for (Operation& operation : under_way_) {
    const bool may_complete = options_.reorder || rest.empty();
    (may_complete && operation.due <= num_polls_ ? due : rest).push_back(operation);
  }
  under_way_ = std::move(rest);
  if (options_.reorder) {
    for (size_t i = due.size(); i > 1; --i) std::swap(due[i - 1], due[random_.Below(i)]);
  }
  return due;
}

Result<size_t> MemoryTier::Complete(const Operation& operation) {
  Result<size_t> bytes = operation.is_load ? Load(operation) : Store(operation);
  if (!bytes.ok()) {
    for (std::byte& byte : operation.into.first(operation.into.size() / 2)) {
      byte = std::byte(random_.Next());
    }
  }
  return bytes;
}

Result<size_t> MemoryTier::Load(const Operation& operation) {
  if (operation.is_cancelled) return Errorf(ErrorCode::kIo, "the load was cancelled");
  if (operation.fault == TierFault::kFail) return Errorf(ErrorCode::kIo, "the load fails by plan");
  if (operation.fault == TierFault::kLose) Remove(operation.key);
  const auto found = index_.find(operation.key);
  if (found == index_.end()) return Errorf(ErrorCode::kNotFound, "the tier has no such record");
  records_.splice(records_.end(), records_, found->second);
  KVERN_ASSIGN_OR_RETURN(const auto bytes, Moved(operation, found->second->bytes));
  if (bytes.size() > operation.into.size()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "the record has {} bytes and the buffer {}: give a larger one", bytes.size(),
                  operation.into.size());
  }
  std::ranges::copy(bytes, operation.into.begin());
  return bytes.size();
}

Result<size_t> MemoryTier::Store(const Operation& operation) {
  if (operation.is_cancelled) return Errorf(ErrorCode::kIo, "the store was cancelled");
  if (operation.fault == TierFault::kFail) return Errorf(ErrorCode::kIo, "the store fails by plan");
  const size_t num_bytes = operation.record.size();
  if (num_bytes > options_.capacity_bytes) {
    return Errorf(ErrorCode::kOutOfMemory, "a record of {} bytes is more than the tier's {}",
                  num_bytes, options_.capacity_bytes);
  }
  if (operation.fault == TierFault::kLose) {
    Remove(operation.key);
    return num_bytes;
  }
  KVERN_ASSIGN_OR_RETURN(
      auto bytes, Moved(operation, std::vector(operation.record.begin(), operation.record.end())));
  Keep(operation.key, std::move(bytes));
  return num_bytes;
}

// `bytes`, as they arrive at the other end.
Result<std::vector<std::byte>> MemoryTier::Moved(const Operation& operation,
                                                 std::vector<std::byte> bytes) {
  if (operation.fault == TierFault::kOtherRecord) {
    const auto other = std::ranges::find_if(
        records_, [&](const Record& record) { return record.key != operation.key; });
    if (other == records_.end()) return Errorf(ErrorCode::kIo, "no other record to mix up");
    return other->bytes;
  }
  if (operation.fault != TierFault::kDamage && operation.fault != TierFault::kTruncate) {
    return bytes;
  }
  if (bytes.empty()) return Errorf(ErrorCode::kIo, "an empty record cannot be damaged");
  const size_t at = random_.Below(bytes.size());
  if (operation.fault == TierFault::kDamage) {
    bytes[at] ^= std::byte(1u << random_.Below(8));
  } else {
    bytes.resize(at);
  }
  return bytes;
}

void MemoryTier::Keep(const TierKey& key, std::vector<std::byte> bytes) {
  Remove(key);
  while (bytes_held_ + bytes.size() > options_.capacity_bytes) Remove(records_.front().key);
  bytes_held_ += bytes.size();
  records_.push_back({.key = key, .bytes = std::move(bytes)});
  index_.emplace(key, std::prev(records_.end()));
}

void MemoryTier::Remove(const TierKey& key) {
  const auto found = index_.find(key);
  if (found == index_.end()) return;
  const auto record = found->second;
  bytes_held_ -= record->bytes.size();
  index_.erase(found);
  records_.erase(record);
}

Result<std::unique_ptr<Tier>> MakeMemoryTier(const TierOptions& options) {
  if (options.capacity_bytes == 0) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "tier memory: a capacity of 0 bytes holds nothing: give it some");
  }
  return std::unique_ptr<Tier>(
      std::make_unique<MemoryTier>(MemoryTierOptions{.capacity_bytes = options.capacity_bytes}));
}

}  // namespace kvern::kv
