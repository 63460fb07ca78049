#include "engine/spec/ngram_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace kvern::engine {
namespace {

constexpr size_t kMinRun = 2;
constexpr size_t kMaxRun = 4;

constexpr size_t kMinSlots = 64;
constexpr size_t kMaxSlots = NgramIndex::kMaxBytes / sizeof(uint32_t);
// Three runs end at each token, and half of the slots stay empty while the table may grow.
constexpr size_t kSlotsPerToken = 6;
// Long enough to lose nothing in a table that is half empty.
constexpr size_t kMaxProbes = 64;

std::span<const TokenId> Tokens(std::span<const TokenId> text, size_t end, size_t length) {
  return text.subspan(end - length, length);
}

size_t Hash(std::span<const TokenId> run) {
  uint64_t hash = run.size();
  for (const TokenId token : run) {
    hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

void NgramIndex::Update(std::span<const TokenId> text) {
  CHECK(text.size() >= num_tokens_ && text.size() < size_t{1} << 30);
  Grow(text);
  // A run that nothing follows yet is what will be looked for, so it waits for the next token.
  for (size_t end = std::max(num_tokens_, kMinRun); end < text.size(); ++end) {
    for (size_t length = kMinRun; length <= std::min(kMaxRun, end); ++length) {
      Insert(text, {end, length});
    }
  }
  num_tokens_ = text.size();
}

std::optional<size_t> NgramIndex::FindContinuation(std::span<const TokenId> text) const {
  for (size_t length = std::min(kMaxRun, text.size()); length >= kMinRun; --length) {
    if (const auto end = Find(text, {text.size(), length})) return end;
  }
  return {};
}

void NgramIndex::Grow(std::span<const TokenId> text) {
  const size_t wanted =
      std::clamp(std::bit_ceil(text.size() * kSlotsPerToken), kMinSlots, kMaxSlots);
  if (wanted <= slots_.size()) return;
  std::vector<uint32_t> old(wanted);
  old.swap(slots_);
  for (const uint32_t slot : old) {
    if (slot != 0) Insert(text, Unpack(slot));
  }
}

// Where the table is full the oldest of those that it could have displaced goes.
void NgramIndex::Insert(std::span<const TokenId> text, Run run) {
  const auto tokens = Tokens(text, run.end, run.length);
  const size_t home = Hash(tokens);
  uint32_t* oldest = nullptr;
  for (size_t i = 0; i < kMaxProbes; ++i) {
    uint32_t& slot = slots_[(home + i) & (slots_.size() - 1)];
    const Run other = Unpack(slot);
    if (slot == 0 || (other.length == run.length &&
                      std::ranges::equal(Tokens(text, other.end, other.length), tokens))) {
      slot = Pack(run);
      return;
    }
    if (oldest == nullptr || slot < *oldest) oldest = &slot;
  }
  *oldest = Pack(run);
}

std::optional<size_t> NgramIndex::Find(std::span<const TokenId> text, Run run) const {
  const auto tokens = Tokens(text, run.end, run.length);
  const size_t home = Hash(tokens);
  for (size_t i = 0; i < kMaxProbes; ++i) {
    const uint32_t slot = slots_[(home + i) & (slots_.size() - 1)];
    if (slot == 0) return {};
    const Run other = Unpack(slot);
    if (other.length == run.length &&
        std::ranges::equal(Tokens(text, other.end, other.length), tokens)) {
      return other.end;
    }
  }
  return {};
}

}  // namespace kvern::engine
