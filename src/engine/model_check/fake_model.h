// A model made of hashes: the K/V row of a token hashes the token, its position and every byte of
// the rows that attention would read; the next token hashes those up to the last, the history and
// the sampling parameters. So a block that is wrong, stale or another's changes the answer.
//
// Blocks hold rows of kRowBytes one after the other. Row t of a window group reads the rows in
// (t - window, t) of its group; every row reads all groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "kvern/engine.h"
#include "kvern/kv_store.h"
#include "kvern/paged_view.h"

namespace kvern::engine::model_check {

inline constexpr size_t kRowBytes = 8;
inline constexpr size_t kBlockBytes = kRowBytes * kBlockTokens;

struct FakeModel {
  std::vector<kv::GroupSpec> groups;  // full or window, kBlockBytes each
  uint32_t vocab_size = 24;
};

kv::GroupSpec FullGroup();
kv::GroupSpec WindowGroup(uint32_t window, uint32_t max_rollback);

// For the BlockStore.
void CopyRows(kv::GroupId group, std::byte* to, const std::byte* from, uint32_t num_tokens);

uint64_t RowAt(const PagedView& view, size_t position);
void SetRow(const PagedView& view, size_t position, uint64_t row);

// Reads a sequence's rows through its block tables, in order.
class RowReader {
 public:
  explicit RowReader(const FakeModel* model) : model_(*model), prefixes_(model->groups.size()) {}

  // Hash of all rows before `position` that a token there may read. REQUIRES: not less than before.
  // Null if one of them was never written.
  std::optional<uint64_t> Context(std::span<const PagedView> views, size_t position);

 private:
  struct Prefix {
    size_t num_blocks = 0;
    uint64_t hash = 0;
  };

  std::optional<uint64_t> ContextOf(size_t group, const PagedView& view, size_t position);

  const FakeModel& model_;
  std::vector<Prefix> prefixes_;  // of whole blocks, by group
};

uint64_t MakeRow(uint64_t context, TokenId token, size_t position, size_t group);

// The token at `position`, after `history`. `context` is that of `position`.
SampledToken Sample(const FakeModel& model, uint64_t context, const SampleRequest& request,
                    std::span<const TokenId> history, size_t position);

// What often follows a token: what a good proposer would say.
TokenId LikelyNext(const FakeModel& model, TokenId token);

// One sequence, computed alone: rows of its own, never shared, copied on write or moved.
class NaiveText {
 public:
  explicit NaiveText(const FakeModel* model);
  NaiveText(const NaiveText& other);
  NaiveText& operator=(const NaiveText&) = delete;

  void Append(TokenId token);
  size_t size() const { return tokens_.size(); }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  SampledToken SampleNext(const SampleRequest& request);

 private:
  using Block = std::vector<std::byte>;

  const FakeModel& model_;
  std::vector<TokenId> tokens_;
  RowReader reader_;
  std::vector<std::vector<std::unique_ptr<Block>>> blocks_;  // [group][block]
  std::vector<std::vector<std::byte*>> tables_;
  std::vector<PagedView> views_;
};

// What ends completions, beside the request.
struct EndRules {
  std::vector<TokenId> end_tokens;
  size_t context = 0;  // tokens that have K/V; one more may be said
};

// The right answer, token by token: of the request alone.
class NaiveAnswer {
 public:
  // `prompt` has the request's tokens. The request and rules must outlive it.
  NaiveAnswer(const Request* request, const EndRules* rules, const NaiveText& prompt,
              uint32_t completion);

  // The next token, or none and finish() is set.
  std::optional<SampledToken> Next();
  std::optional<FinishReason> finish() const { return finish_; }
  size_t num_tokens() const { return text_.size() - request_.tokens.size(); }
  const NaiveText& text() const { return text_; }

 private:
  const Request& request_;
  const EndRules& rules_;
  NaiveText text_;
  SamplingParams params_;
  const uint32_t completion_;
  std::optional<FinishReason> finish_;
};

}  // namespace kvern::engine::model_check
