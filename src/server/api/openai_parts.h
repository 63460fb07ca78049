// Parts that whole replies and streamed ones have in common, in OpenAI's form.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api/openai.h"
#include "text/utf8.h"

namespace kvern::server {

// "stop" or "length".
const char* FinishName(FinishReason finish);

// What K/V depends on beside tokens, short.
std::string SystemFingerprint(const ModelInfo& model);

// id, object, created, model and system_fingerprint.
nlohmann::ordered_json Envelope(const ApiRequest& request, const ModelInfo& model,
                                const ReplyIds& ids, std::string_view object);

// Which of the stops of its request ended a completion, if one did.
std::optional<std::string> FindStop(const ApiRequest& request, const ModelText& text,
                                    const Completion& completion);

// What a tenant is told of why a token was not found: that others have it would tell it what they
// asked, so then it reads as if nobody had.
kv::MissReason ToldReason(kv::MissReason reason);

// Tokens that were not found, by the reasons that are told; without zeros.
nlohmann::ordered_json MissedByReason(const kv::PromptSplit& prompt);

// Found, kept from now on, and missed.
nlohmann::ordered_json PromptDetails(const Report& report);
// A finite number.
double LogprobOf(float logprob);

nlohmann::ordered_json UsageOf(const Report& report);

// The field "kvern_receipt", where the answer has ended well.
void AddReceipt(const Report& report, nlohmann::ordered_json& body);

// "token_ids" of a choice: as vLLM calls them.
nlohmann::ordered_json TokenIds(std::span<const SampledToken> tokens);

// "logprobs" of a chat's choice: for tokens in any pieces.
nlohmann::ordered_json ChatLogprobs(const ModelText& text, std::span<const SampledToken> tokens);

// "logprobs" of a completion's choice, whose offsets count the characters of all pieces so far.
class CompletionLogprobs {
 public:
  explicit CompletionLogprobs(const ModelText& text) : text_(&text) {}
  nlohmann::ordered_json Take(std::span<const SampledToken> tokens);

 private:
  const ModelText* text_;
  text::Utf8Stream stream_;
  size_t offset_ = 0;
};

}  // namespace kvern::server
