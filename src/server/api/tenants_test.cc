// What one tenant is told does not depend on what another asked.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/hash_engine_test_util.h"
#include "server/api/answer_format.h"
#include "server/api/api_test_util.h"
#include "server/api/inspect.h"
#include "server/api/openai_parts.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

std::vector<TokenId> PromptOf(uint32_t first) {
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < 100; ++i) tokens.push_back(TokenId{32 + (first + i * i) % 90});
  return tokens;
}

Request Ask(const std::string& tenant, std::vector<TokenId> tokens) {
  Request request;
  request.tenant = tenant;
  request.tokens = std::move(tokens);
  request.seed = 7;
  request.max_tokens = 12;
  return request;
}

// Everything that "b" is told, whole and as a stream, after "a" has asked.
std::string WhatIsTold(const std::vector<TokenId>& asked_by_a, const std::vector<TokenId>& prompt) {
  const auto engine = engine::hash_model::MakeEngine(
      std::make_shared<engine::hash_model::Machine>(), {.step_tokens = 64, .max_running = 8});
  EXPECT_TRUE(engine->Submit(Ask("a", asked_by_a))->Wait().ok());
  const auto explained = engine->Explain(Ask("b", prompt));
  auto answer = engine->Submit(Ask("b", prompt))->Wait();
  EXPECT_TRUE(answer.ok());
  // Time is another matter (tests/e2e/tenant_timing_test.py).
  answer->report.queue_us = answer->report.ttft_us = answer->report.total_us = 1;
  answer->report.tpot_us = 1;
  const LetterText text;
  const ModelInfo model = {.text = &text, .context = 256, .fingerprint = "0123456789abcdef"};
  std::string told;
  for (const Endpoint endpoint : {Endpoint::kChatCompletions, Endpoint::kCompletions}) {
    ApiRequest request{.endpoint = endpoint, .request = Ask("b", prompt), .has_stream_usage = true};
    told += ResponseBody(request, *answer, model, {.id = "1"}).dump() + "\n";
    told += MakeOpenAiFormat(std::move(request), model, {.id = "1"})->End(answer->report) + "\n";
  }
  ApiRequest request{.request = Ask("b", prompt)};
  const auto anthropic = MakeAnthropicFormat(std::move(request), model, {.id = "1"}, prompt.size());
  told += anthropic->Whole(*answer) + "\n";
  told += FoundBody(explained->split).dump() + MissedByReason(explained->split).dump() + "\n";
  for (const kv::Miss& miss : explained->misses) told += MissBody(text, miss, false).dump();
  for (const kv::Miss& miss : answer->report.misses) told += MissBody(text, miss, false).dump();
  return told;
}

TEST(Tenants, NobodyCanTellWhatAnotherAsked) {
  const std::vector<TokenId> prompt = PromptOf(1);
  std::vector<TokenId> half = PromptOf(2);
  std::copy_n(prompt.begin(), 48, half.begin());
  const std::string told = WhatIsTold(PromptOf(2), prompt);
  EXPECT_EQ(WhatIsTold(prompt, prompt), told);
  EXPECT_EQ(WhatIsTold(half, prompt), told);
  EXPECT_NE(told.find("never_seen"), told.npos);
}

}  // namespace
}  // namespace kvern::server
