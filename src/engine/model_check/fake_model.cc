#include "engine/model_check/fake_model.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace kvern::engine::model_check {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ 0xA0761D6478BD642F) + (b + 1) * 0xE7037ED1A0B428DB;
  z = (z ^ z >> 32) * 0x9FB21C651E98DF25;
  z = (z ^ z >> 29) * 0xD6E8FEB86659FD93;
  return z ^ z >> 32;
}

bool HasTokens(std::span<const TokenId> tokens, TokenId token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

// Everything in the parameters that may change a token.
uint64_t HashOf(const SamplingParams& params) {
  uint64_t hash =
      Mix(std::bit_cast<uint32_t>(params.temperature), std::bit_cast<uint32_t>(params.top_p));
  hash = Mix(hash, static_cast<uint64_t>(params.top_k));
  return Mix(hash, std::bit_cast<uint32_t>(params.presence_penalty));
}

}  // namespace

kv::GroupSpec FullGroup() {
  kv::GroupSpec group;
  group.block_bytes = kBlockBytes;
  return group;
}

kv::GroupSpec WindowGroup(uint32_t window, uint32_t max_rollback) {
  kv::GroupSpec group = FullGroup();
  group.kind = kv::GroupKind::kWindow;
  group.window = window;
  group.max_rollback = max_rollback;
  return group;
}

void CopyRows(kv::GroupId, std::byte* to, const std::byte* from, uint32_t num_tokens) {
  std::memcpy(to, from, num_tokens * kRowBytes);
}

uint64_t RowAt(const PagedView& view, size_t position) {
  uint64_t row = 0;
  std::memcpy(&row, view.blocks[position / kBlockTokens] + position % kBlockTokens * kRowBytes,
              kRowBytes);
  return row;
}

void SetRow(const PagedView& view, size_t position, uint64_t row) {
  std::memcpy(view.blocks[position / kBlockTokens] + position % kBlockTokens * kRowBytes, &row,
              kRowBytes);
}

std::optional<uint64_t> RowReader::ContextOf(size_t group, const PagedView& view, size_t position) {
  const kv::GroupSpec& spec = model_.groups[group];
  size_t begin = 0;
  uint64_t hash = group;
  if (spec.kind == kv::GroupKind::kWindow) {
    begin = position + 1 - std::min<size_t>(position + 1, spec.window);
  } else {
    Prefix& prefix = prefixes_[group];
    for (; prefix.num_blocks < position / kBlockTokens; ++prefix.num_blocks) {
      const std::byte* const block = view.blocks[prefix.num_blocks];
      for (size_t row = 0; row < kBlockTokens; ++row) {
        if (RowAt(view, prefix.num_blocks * kBlockTokens + row) == 0) return std::nullopt;
      }
      prefix.hash = Hash64({block, kBlockBytes}, prefix.hash);
    }
    begin = prefix.num_blocks * kBlockTokens;
    hash = Mix(hash, prefix.hash);
  }
  for (size_t i = begin; i < position; ++i) {
    const uint64_t row = RowAt(view, i);
    if (row == 0) return std::nullopt;
    hash = Mix(hash, row);
  }
  return hash;
}

std::optional<uint64_t> RowReader::Context(std::span<const PagedView> views, size_t position) {
  uint64_t hash = position;
  for (size_t group = 0; group < views.size(); ++group) {
    const auto of_group = ContextOf(group, views[group], position);
    if (!of_group) return std::nullopt;
    hash = Mix(hash, *of_group);
  }
  return hash;
}

uint64_t MakeRow(uint64_t context, TokenId token, size_t position, size_t group) {
  return Mix(Mix(context, static_cast<uint64_t>(token)), position * 4 + group) | 1;
}

TokenId LikelyNext(const FakeModel& model, TokenId token) {
  return TokenId{1 + (static_cast<uint32_t>(token) * 5 + 3) % (model.vocab_size - 1)};
}

SampledToken Sample(const FakeModel& model, uint64_t context, const SampleRequest& request,
                    std::span<const TokenId> history, size_t position) {
  const SamplingParams& params = *request.params;
  const uint64_t logits = context;
  uint64_t hash = Mix(logits, Hash64(std::as_bytes(history), request.num_prompt_tokens));
  hash = Mix(hash, HashOf(params));
  if (params.temperature > 0) {
    hash = Mix(Mix(hash, params.seed), uint64_t{request.completion_index} << 32 | position);
  }
  SampledToken token;
  const bool is_likely = hash % 16 < 9;
  token.id = is_likely ? LikelyNext(model, history.back())
                       : TokenId{static_cast<uint32_t>((hash >> 8) % model.vocab_size)};
  token.logprob = -static_cast<float>(Mix(logits, static_cast<uint64_t>(token.id)) >> 44) / 1024;
  for (int i = 0; i < params.num_logprobs; ++i) {
    const uint64_t other = Mix(logits, static_cast<uint64_t>(i));
    token.top.push_back({TokenId{static_cast<uint32_t>(other % model.vocab_size)},
                         -static_cast<float>(other >> 44) / 1024});
  }
  return token;
}

NaiveText::NaiveText(const FakeModel* model)
    : model_(*model),
      reader_(model),
      blocks_(model->groups.size()),
      tables_(model->groups.size()),
      views_(model->groups.size()) {}

NaiveText::NaiveText(const NaiveText& other)
    : model_(other.model_),
      tokens_(other.tokens_),
      reader_(other.reader_),
      blocks_(other.blocks_.size()),
      tables_(other.tables_.size()),
      views_(other.views_.size()) {
  for (size_t group = 0; group < blocks_.size(); ++group) {
    for (const auto& block : other.blocks_[group]) {
      blocks_[group].push_back(std::make_unique<Block>(*block));
      tables_[group].push_back(blocks_[group].back()->data());
    }
    views_[group] = {tables_[group].data(), static_cast<uint32_t>(tables_[group].size())};
  }
}

void NaiveText::Append(TokenId token) {
  const size_t position = tokens_.size();
  const auto context = reader_.Context(views_, position);
  CHECK(context.has_value());
  for (size_t group = 0; group < blocks_.size(); ++group) {
    if (position % kBlockTokens == 0) {
      blocks_[group].push_back(std::make_unique<Block>(kBlockBytes));
      tables_[group].push_back(blocks_[group].back()->data());
      views_[group] = {tables_[group].data(), static_cast<uint32_t>(tables_[group].size())};
    }
    SetRow(views_[group], position, MakeRow(*context, token, position, group));
  }
  tokens_.push_back(token);
}

SampledToken NaiveText::SampleNext(const SampleRequest& request) {
  const auto context = reader_.Context(views_, tokens_.size());
  CHECK(context.has_value());
  return Sample(model_, *context, request, tokens_, tokens_.size());
}

NaiveAnswer::NaiveAnswer(const Request* request, const EndRules* rules, const NaiveText& prompt,
                         uint32_t completion)
    : request_(*request),
      rules_(*rules),
      text_(prompt),
      params_(request->sampling),
      completion_(completion) {
  params_.seed = *request->seed;
}

std::optional<SampledToken> NaiveAnswer::Next() {
  if (!finish_ &&
      (num_tokens() >= request_.max_tokens.value_or(SIZE_MAX) || text_.size() > rules_.context)) {
    finish_ = FinishReason::kLength;
  }
  if (finish_) return std::nullopt;
  SampledToken token = text_.SampleNext({.params = &params_,
                                         .history = {},
                                         .num_prompt_tokens = request_.tokens.size(),
                                         .completion_index = completion_});
  const bool is_end = !request_.ignore_end && HasTokens(rules_.end_tokens, token.id);
  if (is_end || HasTokens(request_.stop_tokens, token.id)) {
    finish_ = FinishReason::kStop;
    return std::nullopt;
  }
  text_.Append(token.id);
  return token;
}

}  // namespace kvern::engine::model_check
