#include "kv/state_table.h"

#include <algorithm>
#include <utility>

namespace kvern::kv {

StateTable::StateTable(BlockPool* pool, GroupId group, OwnerId owner, std::byte* zero)
    : pool_(pool), group_(group), owner_(owner), zero_(zero), promise_(pool, group, owner) {
  Push(0, std::nullopt);
}

StateTable::StateTable(StateTable&& other) noexcept
    : StateTable(other.pool_, other.group_, other.owner_, other.zero_) {
  std::swap(states_, other.states_);
  std::swap(addresses_, other.addresses_);
  std::swap(promise_, other.promise_);
}

void StateTable::Adopt(size_t position, BlockId block) {
  CHECK(states_.size() == 1 && states_[0].position == 0);
  Push(position, block);
  DropFront();
}

size_t StateTable::BlocksNeeded(size_t num_tokens) const {
  return std::min<size_t>(num_tokens, size_t{pool_->group(group_).max_rollback} + 1);
}

void StateTable::Extend(size_t num_tokens) {
  const size_t num_blocks = BlocksNeeded(num_tokens);
  const size_t length = states_.back().position + num_tokens;
  for (size_t i = num_blocks; i > 0; --i) {
    Push(length + 1 - i, promise_.Take());
  }
  promise_.Drop();
}

void StateTable::Commit(size_t length) {
  const size_t max_rollback = pool_->group(group_).max_rollback;
  while (states_.size() > 1 && states_[1].position + max_rollback <= length) DropFront();
}

bool StateTable::CanTruncate(size_t length) const {
  return length == 0 || std::ranges::find(states_, length, &State::position) != states_.end();
}

void StateTable::Truncate(size_t length) {
  promise_.Drop();
  while (!states_.empty() && states_.back().position > length) DropBack();
  if (states_.empty()) Push(0, std::nullopt);
  CHECK(states_.back().position == length);
}

StateTable StateTable::Fork() {
  promise_.Drop();
  StateTable fork(pool_, group_, owner_, zero_);
  fork.states_ = states_;
  fork.addresses_ = addresses_;
  for (const State& state : states_) {
    if (state.block) pool_->Retain(*state.block);
  }
  return fork;
}

void StateTable::Release() { Truncate(0); }

std::optional<BlockId> StateTable::At(size_t position) const {
  const auto state = std::ranges::find(states_, position, &State::position);
  return state == states_.end() ? std::nullopt : state->block;
}

void StateTable::Replace(size_t position, BlockId block) {
  const auto state = std::ranges::find(states_, position, &State::position);
  CHECK(state != states_.end() && state->block);
  pool_->Release(*state->block);
  state->block = block;
  addresses_[static_cast<size_t>(state - states_.begin())] = pool_->Address(block);
}

void StateTable::Push(size_t position, std::optional<BlockId> block) {
  states_.push_back({position, block});
  addresses_.push_back(block ? pool_->Address(*block) : zero_);
}

void StateTable::DropFront() {
  if (states_.front().block) pool_->Release(*states_.front().block);
  states_.erase(states_.begin());
  addresses_.erase(addresses_.begin());
}

void StateTable::DropBack() {
  if (states_.back().block) pool_->Release(*states_.back().block);
  states_.pop_back();
  addresses_.pop_back();
}

}  // namespace kvern::kv
