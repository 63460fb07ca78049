#include "kv/model_check/naive_sequence.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace kvern::kv::model_check {
namespace {

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t Less(size_t a, size_t b) { return a > b ? a - b : 0; }

}  // namespace

NaiveSequence::NaiveSequence(const CacheSetup& setup, Text prompt, size_t num_tokens)
    : committed(num_tokens),
      setup_(&setup),
      prompt_(std::move(prompt)),
      text_(prompt_),
      groups_(setup.groups.size()) {
  text_.Resize(num_tokens);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupSpec& spec = setup.groups[i];
    if (spec.kind == GroupKind::kWindow) groups_[i].low = Less(num_tokens + 1, spec.window);
    if (spec.kind == GroupKind::kState) groups_[i].required_states = {num_tokens};
  }
}

void NaiveSequence::AdoptRows(const Sequence& real, const SaltsOfRows& known) {
  const GroupSpec& spec = setup_->groups[0];
  const PagedView view = real.View(GroupId{0});
  for (size_t position = 0; position < length(); ++position) {
    uint64_t adopted = 0;
    if (const auto entry = known.find(text_.prefix(position + 1)); entry != known.end()) {
      const size_t block = position / spec.block_tokens, row = position % spec.block_tokens;
      Require(block < view.num_blocks, "a view of {} blocks for {} tokens", view.num_blocks,
              length());
      for (const uint64_t salt : entry->second) {
        if (HasRow(view.blocks[block], spec, row, RowContent(text_, position, salt, 0))) {
          adopted = salt;
        }
      }
    }
    salts_.push_back(adopted);
    for (size_t i = 0; i < groups_.size(); ++i) PutRow(i, position, adopted);
  }
}

void NaiveSequence::Append(const Sequence& real, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) text_.Append(token);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupSpec& spec = setup_->groups[i];
    if (spec.kind != GroupKind::kState) continue;
    const PagedView view = real.View(GroupId(i));
    // To take back all of a draft; of more tokens than may be taken back, the last ones.
    const size_t num_needed = std::min<size_t>(tokens.size(), std::max(spec.max_rollback, 1u));
    size_t num_fresh = 0;
    while (num_fresh < std::min<size_t>(tokens.size(), view.num_blocks)) {
      const std::byte* const block = view.blocks[view.num_blocks - 1 - num_fresh];
      // The state before any token is all zeros too, but it is not a new one.
      if (block == groups_[i].zero_state || !IsZeroBlock(block, spec)) break;
      ++num_fresh;
    }
    Require(num_fresh >= num_needed, "{} fresh states of group {} after {} tokens, {} needed",
            num_fresh, i, tokens.size(), num_needed);
    auto& required = groups_[i].required_states;
    for (size_t k = num_fresh; k-- > 0;) {
      WriteState(view.blocks[view.num_blocks - 1 - k], spec, text_, length() - k);
      required.push_back(length() - k);
    }
    std::erase_if(required, [&](size_t p) { return p + spec.max_rollback < length(); });
  }
}

void NaiveSequence::PutRow(size_t index, size_t position, uint64_t row_salt) {
  const GroupSpec& spec = setup_->groups[index];
  if (spec.kind == GroupKind::kState) return;
  auto& image = groups_[index].image;
  const size_t begin = position / spec.block_tokens * spec.block_bytes;
  if (image.size() < begin + spec.block_bytes) image.resize(begin + spec.block_bytes);
  WriteRow(&image[begin], spec, position % spec.block_tokens,
           RowContent(text_, position, row_salt, index));
}

void NaiveSequence::WriteRows(const Sequence& real, size_t num_rows, SaltsOfRows& known) {
  CHECK(num_rows <= length());
  while (written() < num_rows) {
    const size_t position = written();
    salts_.push_back(salt);
    if (salt != 0) {
      auto& salts = known[text_.prefix(position + 1)];
      if (std::find(salts.begin(), salts.end(), salt) == salts.end()) salts.push_back(salt);
    }
    for (size_t i = 0; i < groups_.size(); ++i) {
      const GroupSpec& spec = setup_->groups[i];
      if (spec.kind == GroupKind::kState) continue;
      PutRow(i, position, salt);
      const PagedView view = real.View(GroupId(i));
      const size_t block = position / spec.block_tokens;
      Require(block < view.num_blocks, "group {} has {} blocks for {} tokens", i, view.num_blocks,
              length());
      WriteRow(view.blocks[block], spec, position % spec.block_tokens,
               RowContent(text_, position, salt, i));
    }
  }
}

void NaiveSequence::Commit(size_t num_tokens) {
  committed = num_tokens;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupSpec& spec = setup_->groups[i];
    // Of the states up to here only the last is needed: that of what is final.
    auto& states = groups_[i].required_states;
    while (states.size() > 1 && states[1] <= num_tokens) states.erase(states.begin());
    if (spec.kind != GroupKind::kWindow) continue;
    groups_[i].low =
        std::max(groups_[i].low, Less(num_tokens + 1, spec.window + spec.max_rollback));
  }
}

bool NaiveSequence::CanTruncate(size_t num_tokens) const {
  if (num_tokens == 0) return true;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupSpec& spec = setup_->groups[i];
    if (spec.kind == GroupKind::kWindow && Less(num_tokens + 1, spec.window) / spec.block_tokens <
                                               groups_[i].low / spec.block_tokens) {
      return false;
    }
    const auto& states = groups_[i].required_states;
    if (spec.kind == GroupKind::kState &&
        std::find(states.begin(), states.end(), num_tokens) == states.end()) {
      return false;
    }
  }
  return true;
}

void NaiveSequence::Truncate(size_t num_tokens) {
  dirty_end_ =
      std::min(std::max(dirty_end_, length()), RoundUp(num_tokens, setup_->block_tokens()));
  text_.Resize(num_tokens);
  committed = std::min(committed, num_tokens);
  salts_.resize(std::min(salts_.size(), num_tokens));
  published = std::min(published, num_tokens - num_tokens % setup_->block_tokens());
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    std::erase_if(group.required_states, [&](size_t p) { return p > num_tokens; });
    if (setup_->groups[i].kind == GroupKind::kState && group.required_states.empty()) {
      group.required_states = {num_tokens};
    }
    // It went back further than it had to be able to: then it had more than it had to.
    if (setup_->groups[i].kind == GroupKind::kWindow) {
      group.low = std::min(group.low, Less(num_tokens + 1, setup_->groups[i].window));
    }
  }
}

void NaiveSequence::CheckViews(const Sequence& real) {
  Require(real.length() == length(), "length is {}, not {}", real.length(), length());
  Require(real.committed() == committed, "committed is {}, not {}", real.committed(), committed);
  for (size_t i = 0; i < groups_.size(); ++i) {
    const PagedView view = real.View(GroupId(i));
    if (setup_->groups[i].kind == GroupKind::kState) {
      CheckStates(view, i);
    } else {
      CheckRows(view, i);
    }
  }
}

void NaiveSequence::CheckRows(const PagedView& view, size_t index) {
  const GroupSpec& spec = setup_->groups[index];
  const Group& group = groups_[index];
  const size_t num_blocks = RoundUp(length(), spec.block_tokens) / spec.block_tokens;
  Require(view.num_blocks == num_blocks, "group {}: a view of {} blocks for {} tokens", index,
          view.num_blocks, length());
  for (size_t i = 0; i < num_blocks; ++i) {
    const size_t first = i * spec.block_tokens, end = first + spec.block_tokens;
    const std::byte* const block = view.blocks[i];
    if (end <= group.low) {
      if (IsZeroBlock(block, spec)) continue;
      Require(setup_->has_waits || end > Less(committed + 1, spec.window + spec.max_rollback),
              "group {}: block {} is out of sight and was not let go of", index, i);
    }
    if (end <= written()) {
      Require(std::memcmp(block, &group.image[i * spec.block_bytes], spec.block_bytes) == 0,
              "group {}: block {} of {} tokens, {} committed, has wrong bytes", index, i, length(),
              committed);
    } else {
      CheckPartialBlock(block, index, first);
    }
  }
}

void NaiveSequence::CheckPartialBlock(const std::byte* block, size_t index, size_t first) const {
  const GroupSpec& spec = setup_->groups[index];
  const size_t end = std::min(length(), first + spec.block_tokens);
  for (size_t position = first; position < end; ++position) {
    const size_t row = position - first;
    if (position < written()) {
      Require(HasRow(block, spec, row, RowContent(text_, position, salts_[position], index)),
              "group {}: the row of position {} of {}, {} written, has wrong bytes", index,
              position, length(), written());
    } else if (position >= dirty_end_) {
      Require(HasZeroRow(block, spec, row), "group {}: the new row of position {} is not zeros",
              index, position);
    }
  }
}

void NaiveSequence::CheckStates(const PagedView& view, size_t index) {
  const GroupSpec& spec = setup_->groups[index];
  auto& required = groups_[index].required_states;
  Require(view.num_blocks > 0, "group {}: no state at all", index);
  Require(HasState(view.blocks[view.num_blocks - 1], spec, text_, length()),
          "group {}: the last state is not that of {} tokens", index, length());
  std::vector<size_t> held = {length()};
  for (size_t i = view.num_blocks - 1; i-- > 0;) {
    size_t position = held.back();
    while (position > 0 && !HasState(view.blocks[i], spec, text_, position - 1)) --position;
    Require(position > 0, "group {}: state {} of {} is of no position before {}", index, i,
            view.num_blocks, held.back());
    held.push_back(position - 1);
  }
  if (held.back() == 0) groups_[index].zero_state = view.blocks[0];
  for (const size_t position : required) {
    Require(std::find(held.begin(), held.end(), position) != held.end(),
            "group {}: the state of position {} of {} is gone", index, position, length());
  }
  required.assign(held.rbegin(), held.rend());
  std::erase_if(required, [&](size_t p) { return p + spec.max_rollback < length(); });
}

}  // namespace kvern::kv::model_check
