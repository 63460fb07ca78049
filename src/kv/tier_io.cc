#include "kv/tier_io.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace kvern::kv {

Result<std::unique_ptr<TierIo>> TierIo::Create(Tier* tier, size_t max_operations,
                                               size_t max_record_bytes) {
  CHECK(tier != nullptr && max_operations > 0 && max_record_bytes > 0);
  std::vector<AlignedBuffer> buffers;
  for (size_t i = 0; i < max_operations; ++i) {
    KVERN_ASSIGN_OR_RETURN(auto buffer, AlignedBuffer::Create(max_record_bytes));
    buffers.push_back(std::move(buffer));
  }
  return std::unique_ptr<TierIo>(new TierIo(tier, std::move(buffers), max_record_bytes));
}

TierIo::TierIo(Tier* tier, std::vector<AlignedBuffer> buffers, size_t max_record_bytes)
    : tier_(tier), max_record_bytes_(max_record_bytes), slots_(buffers.size()) {
  for (size_t i = slots_.size(); i > 0; --i) {
    slots_[i - 1].buffer = std::move(buffers[i - 1]);
    free_slots_.push_back(i - 1);
  }
}

TierIo::~TierIo() {
  queue_.clear();
  loads_.clear();
  for (const auto& [number, slot] : under_way_) {
    if (slots_[slot].state == SlotState::kLoading) slots_[slot].state = SlotState::kGivenUp;
    tier_->Cancel(TierTicket(number));
  }
  while (!under_way_.empty()) {
    const size_t num_before = under_way_.size();
    Poll();
    if (under_way_.size() == num_before) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

bool TierIo::TryStore(const TierKey& key, size_t record_bytes, const Fill& fill) {
  CHECK(record_bytes <= max_record_bytes_);
  if (free_slots_.empty()) {
    ++stats_.stores_skipped;
    return false;
  }
  ++stats_.stores_started;
  const uint64_t number = next_number_++;
  Slot& slot = slots_[TakeSlot(SlotState::kStoring, number)];
  slot.record_bytes = record_bytes;
  const std::span record(slot.buffer.data(), record_bytes);
  fill(record);
  tier_->StartStore(TierTicket(number), key, record);
  return true;
}

LoadId TierIo::StartLoad(const TierKey& key) {
  ++stats_.loads_started;
  const uint64_t number = next_number_++;
  loads_.emplace(number, Load{});
  queue_.emplace(number, key);
  StartQueued();
  return LoadId(number);
}

std::span<const LoadId> TierIo::Poll() {
  ended_.clear();
  completions_.clear();
  tier_->Poll(completions_);
  for (const TierCompletion& completion : completions_) Complete(completion);
  StartQueued();
  return ended_;
}

std::optional<Result<std::span<const std::byte>>> TierIo::Loaded(LoadId load) const {
  const auto found = loads_.find(static_cast<uint64_t>(load));
  CHECK(found != loads_.end());
  if (found->second.error) return *found->second.error;
  if (!found->second.slot) return std::nullopt;
  const Slot& slot = slots_[*found->second.slot];
  if (slot.state != SlotState::kLoaded) return std::nullopt;
  return std::span(slot.buffer.data(), slot.record_bytes);
}

void TierIo::Finish(LoadId load) {
  const auto found = loads_.find(static_cast<uint64_t>(load));
  CHECK(found != loads_.end());
  if (const std::optional<size_t> slot = found->second.slot) {
    if (slots_[*slot].state == SlotState::kLoaded) {
      FreeSlot(*slot);
    } else {
      ++stats_.loads_cancelled;
      slots_[*slot].state = SlotState::kGivenUp;
      tier_->Cancel(TierTicket(found->first));
    }
  } else if (queue_.erase(found->first) > 0) {
    ++stats_.loads_cancelled;
  }
  loads_.erase(found);
  StartQueued();
}

size_t TierIo::TakeSlot(SlotState state, uint64_t number) {
  const size_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot].state = state;
  slots_[slot].number = number;
  under_way_.emplace(number, slot);
  return slot;
}

void TierIo::FreeSlot(size_t slot) {
  slots_[slot].state = SlotState::kFree;
  free_slots_.push_back(slot);
}

void TierIo::StartQueued() {
  while (!queue_.empty() && !free_slots_.empty()) {
    const auto [number, key] = *queue_.begin();
    queue_.erase(queue_.begin());
    const size_t slot = TakeSlot(SlotState::kLoading, number);
    loads_.at(number).slot = slot;
    tier_->StartLoad(TierTicket(number), key,
                     std::span(slots_[slot].buffer.data(), max_record_bytes_));
  }
}

void TierIo::Complete(const TierCompletion& completion) {
  const auto found = under_way_.find(static_cast<uint64_t>(completion.ticket));
  if (found == under_way_.end()) {
    ++stats_.stray_completions;
    return;
  }
  const size_t slot = found->second;
  under_way_.erase(found);
  if (slots_[slot].state == SlotState::kLoading) return EndLoad(slot, completion.bytes);
  if (slots_[slot].state == SlotState::kStoring) {
    if (completion.bytes.ok()) {
      ++stats_.stores_done;
      stats_.bytes_stored += slots_[slot].record_bytes;
    } else {
      ++stats_.stores_failed;
    }
  }
  FreeSlot(slot);
}

void TierIo::EndLoad(size_t slot, const Result<size_t>& bytes) {
  const uint64_t number = slots_[slot].number;
  ended_.push_back(LoadId(number));
  if (bytes.ok() && *bytes <= max_record_bytes_) {
    ++stats_.loads_done;
    stats_.bytes_loaded += *bytes;
    slots_[slot].state = SlotState::kLoaded;
    slots_[slot].record_bytes = *bytes;
    return;
  }
  ++stats_.loads_failed;
  loads_.at(number) = {
      .slot = std::nullopt,
      .error = bytes.ok() ? Errorf(ErrorCode::kIo,
                                   "the tier says it read {} bytes into a buffer of {}: the tier "
                                   "is at fault",
                                   *bytes, max_record_bytes_)
                          : bytes.error()};
  FreeSlot(slot);
}

void TierIo::CheckInvariants() const {
  std::vector<bool> is_free(slots_.size(), false);
  for (const size_t slot : free_slots_) {
    CHECK(!is_free[slot]);
    is_free[slot] = true;
  }
  size_t num_held = 0, num_loading = 0, num_storing = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    CHECK(is_free[i] == (slot.state == SlotState::kFree));
    if (slot.state == SlotState::kFree) continue;
    const auto operation = under_way_.find(slot.number);
    const bool is_under_way = operation != under_way_.end() && operation->second == i;
    CHECK(is_under_way == (slot.state != SlotState::kLoaded));
    num_loading += slot.state == SlotState::kLoading ? 1 : 0;
    num_storing += slot.state == SlotState::kStoring ? 1 : 0;
    if (slot.state == SlotState::kLoading || slot.state == SlotState::kLoaded) {
      CHECK(loads_.at(slot.number).slot == i);
      ++num_held;
    }
  }
  CHECK(under_way_.size() <= slots_.size() - free_slots_.size());
  CHECK(queue_.empty() || free_slots_.empty());
  for (const auto& [number, load] : loads_) {
    num_held -= load.slot ? 1 : 0;
    CHECK(queue_.contains(number) == (!load.slot && !load.error));
    CHECK(!load.slot || !load.error);
  }
  CHECK(num_held == 0);
  CHECK(stats_.loads_started == stats_.loads_done + stats_.loads_failed + stats_.loads_cancelled +
                                    queue_.size() + num_loading);
  CHECK(stats_.stores_started == stats_.stores_done + stats_.stores_failed + num_storing);
}

}  // namespace kvern::kv
