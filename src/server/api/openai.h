// OpenAI's chat completions and completions: a request's body to what the engine is asked, and its
// answer to the body of the reply. docs/batch.md lists the fields.
//
// Functions of their arguments, safe from any thread; they neither read nor write anything else.
// Fields that are not known are ignored, null counts as absent, a wrong type is an error that names
// the field, and what would change the answer but is not there yet is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kvern/engine.h"
#include "server/api/api_error.h"
#include "server/api/model_text.h"

namespace kvern::server {

enum class Endpoint { kChatCompletions, kCompletions };

// "/v1/chat/completions" and "/v1/completions".
std::optional<Endpoint> FindEndpoint(std::string_view path);

// What a server's flags say of fields that a request leaves away; none: what its protocol says.
struct RequestDefaults {
  std::optional<float> temperature = {};
  std::optional<float> top_p = {};
  std::optional<float> min_p = {};
  std::optional<int32_t> top_k = {};
  std::optional<float> repetition_penalty = {};
  std::optional<int32_t> repetition_window = {};
  std::optional<float> presence_penalty = {};
  std::optional<float> frequency_penalty = {};
  std::optional<uint64_t> seed = {};
  std::optional<size_t> max_tokens = {};
  bool ignore_end = false;
  bool use_cache = true;
  bool is_verbose = false;
  std::optional<bool> thinking = {};  // what templates know as "enable_thinking"
};

struct ModelInfo {
  const ModelText* text = nullptr;
  size_t context = 0;            // tokens of a sequence at most
  std::string fingerprint = {};  // hex
  RequestDefaults defaults = {};
};

// What llama-server's clients may ask for beside the answer, of any endpoint.
struct LlamaFields {
  bool has_token_timings = false;  // "timings_per_token"
  bool has_progress = false;       // "return_progress"
  bool is_verbose = false;         // "verbose"
  bool has_tokens = false;         // "return_tokens"
  bool has_sampled_probs = false;  // "post_sampling_probs"
  size_t num_probs = 0;            // "n_probs"
  std::vector<TokenId> ignored_ends = {};
  std::string prompt = {};              // as text, where it is told
  std::vector<std::string> shown = {};  // "response_fields"; empty: all
};

struct ApiRequest {
  Endpoint endpoint = Endpoint::kChatCompletions;
  Request request = {};    // `tokens` is the prompt
  std::string model = {};  // as the client calls it
  size_t num_choices = 1;  // ≤ request.n: the best are chosen
  bool has_logprobs = false;
  bool has_token_ids = false;  // return_token_ids
  bool is_stream = false;
  bool has_stream_usage = false;  // stream_options.include_usage
  LlamaFields llama = {};
};

std::variant<ApiRequest, ApiError> ParseRequest(Endpoint endpoint,
                                                const nlohmann::ordered_json& body,
                                                const ModelInfo& model);

// What a reply says beside the answer.
struct ReplyIds {
  std::string id;       // unique, without the endpoint's prefix
  int64_t created = 0;  // seconds of Unix time
};

// Why an answer is none: a completion failed.
std::optional<ApiError> AnswerError(const Answer& answer);

// `request.request` is not read. REQUIRES: !AnswerError(answer), and at least num_choices
// completions.
nlohmann::ordered_json ResponseBody(const ApiRequest& request, const Answer& answer,
                                    const ModelInfo& model, const ReplyIds& ids);

}  // namespace kvern::server
