// Texts, and what a causal model would write for them: row t of a block is a function of the
// namespace and the tokens up to t, and a state of those before its position. So a block that is
// shared wrongly, copied wrongly or written twice shows in its bytes.
//
// A block is transposed like real K: token t owns every byte i with i mod block_tokens = t.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvern/ids.h"
#include "kvern/kv_store.h"

namespace kvern::kv::model_check {

// Prints a finding and aborts: a case that fails ends its process.
[[noreturn]] void Fail(const std::string& finding);

template <typename... Args>
void Require(bool holds, fmt::format_string<Args...> finding, Args&&... args) {
  if (!holds) [[unlikely]]
    Fail(fmt::format(finding, std::forward<Args>(args)...));
}

// Tokens of one namespace, and a hash of each prefix that stands for it.
class Text {
 public:
  Text(size_t ns, std::span<const TokenId> tokens);

  size_t ns() const { return ns_; }
  size_t size() const { return tokens_.size(); }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  // Of the first `num_tokens`.
  uint64_t prefix(size_t num_tokens) const { return prefixes_[num_tokens]; }

  void Append(TokenId token);
  void Resize(size_t num_tokens);  // to no more than size()

  static uint64_t Extend(uint64_t prefix, TokenId token);

 private:
  size_t ns_;
  std::vector<TokenId> tokens_;
  std::vector<uint64_t> prefixes_;  // [size + 1]
};

size_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b);

uint64_t Mix(uint64_t a, uint64_t b);

// What the row at `position` of a text holds in a group. `salt` 0 is the truth.
uint64_t RowContent(const Text& text, size_t position, uint64_t salt, size_t group);

void WriteRow(std::byte* block, const GroupSpec& group, size_t row, uint64_t content);
bool HasRow(const std::byte* block, const GroupSpec& group, size_t row, uint64_t content);
bool HasZeroRow(const std::byte* block, const GroupSpec& group, size_t row);

// The whole block of a state after the first `position` tokens; that before any is all zeros.
void WriteState(std::byte* block, const GroupSpec& group, const Text& text, size_t position);
bool HasState(const std::byte* block, const GroupSpec& group, const Text& text, size_t position);

bool IsZeroBlock(const std::byte* block, const GroupSpec& group);

// What a store of the test does wrong, to see that the checker notices.
enum class StoreFault { kNone, kDoesNotZero, kCopiesOneRowLess };

// Exact sizes from the heap, so that sanitizers see every byte outside.
class CheckedStore final : public BlockStore {
 public:
  CheckedStore(std::vector<GroupSpec> groups, StoreFault fault);
  ~CheckedStore() override;

  std::optional<size_t> refuse_after;  // refuses once, after so many more
  size_t num_refused = 0;

  Result<Region> Allocate(size_t bytes) override;
  void Free(Region region) override;
  void Zero(std::byte* to, size_t bytes) override;
  void Copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void CopyRows(GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens) override;
  size_t bytes_held() const override { return bytes_held_; }

 private:
  const std::vector<GroupSpec> groups_;
  const StoreFault fault_;
  std::map<std::byte*, size_t> regions_;
  size_t bytes_held_ = 0;
};

}  // namespace kvern::kv::model_check
