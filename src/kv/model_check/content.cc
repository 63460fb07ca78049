#include "kv/model_check/content.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/result.h"

namespace kvern::kv::model_check {
namespace {

constexpr uint64_t kStateSalt = 0x57A7E;
constexpr uint64_t kMaxRowGroups = 4;

std::byte ByteOf(uint64_t content, size_t index) {
  return std::byte((content >> (index % 8 * 8)) & 0xFF);
}

uint64_t StateContent(const Text& text, size_t position) {
  return Mix(text.prefix(position), kStateSalt);
}

}  // namespace

void Fail(const std::string& finding) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", finding);
  std::abort();
}

Text::Text(size_t ns, std::span<const TokenId> tokens) : ns_(ns), prefixes_{Mix(ns, 0x4E53)} {
  for (const TokenId token : tokens) Append(token);
}

void Text::Append(TokenId token) {
  tokens_.push_back(token);
  prefixes_.push_back(Extend(prefixes_.back(), token));
}

void Text::Resize(size_t num_tokens) {
  CHECK(num_tokens <= size());
  tokens_.resize(num_tokens);
  prefixes_.resize(num_tokens + 1);
}

uint64_t Text::Extend(uint64_t prefix, TokenId token) {
  return Mix(prefix, static_cast<uint64_t>(token));
}

size_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto [end, _] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<size_t>(end - a.begin());
}

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ 0x6A09E667F3BCC909) + (b + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
  z = (z ^ z >> 27) * 0x94D049BB133111EB;
  return z ^ z >> 31;
}

uint64_t RowContent(const Text& text, size_t position, uint64_t salt, size_t group) {
  return Mix(text.prefix(position + 1), salt * kMaxRowGroups + group);
}

void WriteRow(std::byte* block, const GroupSpec& group, size_t row, uint64_t content) {
  size_t index = 0;
  for (size_t i = row; i < group.block_bytes; i += group.block_tokens) {
    block[i] = ByteOf(content, index++);
  }
}

bool HasRow(const std::byte* block, const GroupSpec& group, size_t row, uint64_t content) {
  size_t index = 0;
  for (size_t i = row; i < group.block_bytes; i += group.block_tokens) {
    if (block[i] != ByteOf(content, index++)) return false;
  }
  return true;
}

bool HasZeroRow(const std::byte* block, const GroupSpec& group, size_t row) {
  return HasRow(block, group, row, 0);
}

void WriteState(std::byte* block, const GroupSpec& group, const Text& text, size_t position) {
  const uint64_t content = position == 0 ? 0 : StateContent(text, position);
  for (size_t i = 0; i < group.block_bytes; ++i) block[i] = ByteOf(content, i);
}

bool HasState(const std::byte* block, const GroupSpec& group, const Text& text, size_t position) {
  const uint64_t content = position == 0 ? 0 : StateContent(text, position);
  for (size_t i = 0; i < group.block_bytes; ++i) {
    if (block[i] != ByteOf(content, i)) return false;
  }
  return true;
}

bool IsZeroBlock(const std::byte* block, const GroupSpec& group) {
  return block[0] == std::byte{0} && std::memcmp(block, block + 1, group.block_bytes - 1) == 0;
}

CheckedStore::CheckedStore(std::vector<GroupSpec> groups, StoreFault fault)
    : groups_(std::move(groups)), fault_(fault) {}

CheckedStore::~CheckedStore() {
  Require(regions_.empty(), "{} regions of the store were not given back", regions_.size());
}

Result<Region> CheckedStore::Allocate(size_t bytes) {
  if (refuse_after && (*refuse_after)-- == 0) {
    refuse_after.reset();
    ++num_refused;
    return Error{ErrorCode::kOutOfMemory, "refused for the test"};
  }
  CHECK(bytes > 0 && bytes % kBlockAlignment == 0);
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, bytes));
  CHECK(memory != nullptr);
  std::memset(memory, 0, bytes);
  regions_[memory] = bytes;
  bytes_held_ += bytes;
  return Region(memory, bytes);
}

void CheckedStore::Free(Region region) {
  const auto entry = regions_.find(region.data());
  Require(entry != regions_.end() && entry->second == region.size(),
          "a region of {} bytes was given back that is not the store's", region.size());
  regions_.erase(entry);
  bytes_held_ -= region.size();
  std::free(region.data());
}

void CheckedStore::Zero(std::byte* to, size_t bytes) {
  if (fault_ != StoreFault::kDoesNotZero) std::memset(to, 0, bytes);
}

void CheckedStore::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void CheckedStore::CopyRows(GroupId group_id, std::byte* to, const std::byte* from,
                            uint32_t num_tokens) {
  const GroupSpec& group = groups_[static_cast<size_t>(group_id)];
  Require(num_tokens <= group.block_tokens, "{} rows of a block were to be copied", num_tokens);
  Require(IsZeroBlock(to, group) || fault_ != StoreFault::kNone,
          "rows were to be copied into a block that is not zeroed");
  if (fault_ == StoreFault::kCopiesOneRowLess && num_tokens > 0) --num_tokens;
  for (size_t i = 0; i < group.block_bytes; ++i) {
    if (i % group.block_tokens < num_tokens) to[i] = from[i];
  }
}

}  // namespace kvern::kv::model_check
