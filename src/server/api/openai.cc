#include "server/api/openai.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/conversation.h"
#include "server/api/field_reader.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxCompletions = 128;
constexpr size_t kMaxLogprobs = 20;
constexpr size_t kMaxStops = 64;
constexpr size_t kMaxCount = size_t{1} << 31;
constexpr float kMaxFloat = std::numeric_limits<float>::max();

void ReadSampling(FieldReader& fields, const RequestDefaults& defaults, SamplingParams& params) {
  const auto number = [&fields](const char* name, float low, float high, std::optional<float> usual,
                                float otherwise) {
    return fields.Number(name, low, high).value_or(usual.value_or(otherwise));
  };
  const auto integer = [&fields](const char* name, std::optional<int32_t> usual,
                                 int32_t otherwise) {
    return static_cast<int32_t>(fields.Integer(name, -1, std::numeric_limits<int32_t>::max())
                                    .value_or(usual.value_or(otherwise)));
  };
  params.temperature = number("temperature", 0, kMaxFloat, defaults.temperature, 1);
  // Zero is what OpenAI allows and the engine does not: the most likely token alone, as here.
  params.top_p =
      std::max(number("top_p", 0, 1, defaults.top_p, 1), std::numeric_limits<float>::min());
  params.min_p = number("min_p", 0, 1, defaults.min_p, 0);
  params.top_k = integer("top_k", defaults.top_k, 0);
  params.presence_penalty =
      number("presence_penalty", -kMaxFloat, kMaxFloat, defaults.presence_penalty, 0);
  params.frequency_penalty =
      number("frequency_penalty", -kMaxFloat, kMaxFloat, defaults.frequency_penalty, 0);
  params.repetition_window = integer("repeat_last_n", defaults.repetition_window, 64);
  params.repetition_penalty = defaults.repetition_penalty.value_or(1);
  for (const char* const name : {"repeat_penalty", "repetition_penalty"}) {
    const auto penalty = fields.Number(name, 0, kMaxFloat);
    if (!penalty) continue;
    if (*penalty == 0) fields.Fail(BadField(name, "must be above 0; 1 is off"));
    params.repetition_penalty = *penalty;
  }
}

void ReadLogitBias(FieldReader& fields, size_t vocab_size, SamplingParams& params) {
  const Json* const biases = fields.Object("logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, bias] : biases->items()) {
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id >= vocab_size) {
      return fields.Fail(BadField(
          "logit_bias", fmt::format("has a key that is no token id below {}", vocab_size)));
    }
    const double value = bias.is_number() ? bias.get<double>() : 2.0 * double{kMaxFloat};
    if (value < -double{kMaxFloat} || value > double{kMaxFloat}) {
      return fields.Fail(BadField("logit_bias", fmt::format("of token {} must be a number", id)));
    }
    params.logit_bias.emplace_back(TokenId{id}, static_cast<float>(value));
  }
}

void ReadStops(FieldReader& fields, size_t vocab_size, Request& request) {
  if (const Json* const stop = fields.Find("stop")) {
    const Json list = stop->is_string() ? Json::array({*stop}) : *stop;
    const bool is_list =
        list.is_array() &&
        std::all_of(list.begin(), list.end(), [](const Json& x) { return x.is_string(); });
    if (!is_list || list.size() > kMaxStops) {
      return fields.Fail(
          BadField("stop", fmt::format("must be a string or an array of at most {}", kMaxStops)));
    }
    for (const Json& text : list) {
      auto stop = text.get<std::string>();
      if (!stop.empty()) request.stop.push_back(std::move(stop));
    }
  }
  if (const Json* const ids = fields.Array("stop_token_ids")) {
    for (const Json& id : *ids) {
      const auto token = ToInteger(id, 0, static_cast<int64_t>(vocab_size) - 1);
      if (!token || ids->size() > kMaxStops) {
        return fields.Fail(BadField("stop_token_ids", fmt::format("must be at most {} ids below {}",
                                                                  kMaxStops, vocab_size)));
      }
      request.stop_tokens.push_back(TokenId{static_cast<uint32_t>(*token)});
    }
  }
}

void ReadLogprobs(FieldReader& fields, ApiRequest& result) {
  size_t num_logprobs = 0;
  if (result.endpoint == Endpoint::kCompletions) {
    const auto count = fields.Count("logprobs", 0, kMaxLogprobs);
    result.has_logprobs = count.has_value();
    num_logprobs = count.value_or(0);
  } else {
    result.has_logprobs = fields.Bool("logprobs").value_or(false);
    num_logprobs = fields.Count("top_logprobs", 0, kMaxLogprobs).value_or(0);
    if (num_logprobs > 0 && !result.has_logprobs) {
      fields.Fail(BadField("top_logprobs", "needs logprobs to be true"));
    }
  }
  result.request.sampling.num_logprobs = static_cast<int32_t>(num_logprobs);
}

void ReadCounts(FieldReader& fields, const RequestDefaults& defaults, ApiRequest& result) {
  result.num_choices = fields.Count("n", 1, kMaxCompletions).value_or(1);
  result.request.n = result.num_choices;
  if (result.endpoint == Endpoint::kCompletions) {
    const size_t best_of = fields.Count("best_of", 1, kMaxCompletions).value_or(result.num_choices);
    if (best_of < result.num_choices) fields.Fail(BadField("best_of", "must be at least n"));
    result.request.n = best_of;
  }
  // The later name wins. Absent and -1 are the server's default, or what the context allows.
  result.request.max_tokens = defaults.max_tokens;
  for (const char* const name : {"max_tokens", "max_completion_tokens"}) {
    const auto count = fields.Integer(name, -1, kMaxCount);
    if (!count) continue;
    if (*count == 0) fields.Fail(BadField(name, "must be at least 1"));
    if (*count > 0) result.request.max_tokens = static_cast<size_t>(*count);
  }
}

void ReadSeed(FieldReader& fields, const RequestDefaults& defaults, Request& request) {
  request.seed = defaults.seed;
  const Json* const seed = fields.Find("seed");
  if (seed == nullptr) return;
  if (!seed->is_number_integer()) return fields.Fail(BadField("seed", "must be an integer"));
  const bool is_none = !seed->is_number_unsigned() && *seed == -1;  // llama.cpp's "draw one"
  request.seed = is_none ? std::nullopt : std::optional(seed->get<uint64_t>());
}

void ReadEngineFields(FieldReader& fields, const RequestDefaults& defaults, ApiRequest& result) {
  Request& request = result.request;
  request.ignore_end = fields.Bool("ignore_eos").value_or(defaults.ignore_end);
  request.cache.use = fields.Bool("cache_prompt").value_or(defaults.use_cache);
  request.priority =
      static_cast<int>(fields.Integer("priority", -1'000'000, 1'000'000).value_or(0));
  fields.String("user");
  // The server's own; checked here so that every endpoint does.
  if (const auto salt = fields.String("cache_salt"); salt && salt->empty()) {
    fields.Fail(BadField("cache_salt", "must not be empty"));
  }
  result.model = fields.String("model").value_or("");
  result.is_stream = fields.Bool("stream").value_or(false);
  result.has_token_ids = fields.Bool("return_token_ids").value_or(false);
  if (const Json* const options = fields.Object("stream_options")) {
    FieldReader option(*options);
    result.has_stream_usage = option.Bool("include_usage").value_or(false);
    if (!option.ok()) fields.Fail(*option.error());
  }
}

bool IsEmpty(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.empty() || value == false;
}

// What would change the answer.
void RefuseTools(FieldReader& fields) {
  for (const auto& [tools, choice] : {std::pair("tools", "tool_choice"),  //
                                      std::pair("functions", "function_call")}) {
    const Json* const offered = fields.Array(tools);
    const Json* const chosen = fields.Find(choice);
    if (chosen != nullptr && !chosen->is_string() && !chosen->is_object()) {
      return fields.Fail(BadField(choice, "must be a string or an object"));
    }
    if (offered == nullptr || offered->empty() || (chosen != nullptr && *chosen == "none"))
      continue;
    fields.Fail(NotOffered(tools, fmt::format("calling tools (unless {} is \"none\")", choice)));
  }
}

void RefuseFormats(FieldReader& fields) {
  if (const Json* const format = fields.Object("response_format")) {
    FieldReader option(*format);
    const auto type = option.String("type");
    if (!option.ok()) fields.Fail(BadField("response_format.type", "must be a string"));
    if (type && *type != "text") fields.Fail(NotOffered("response_format", *type));
  }
  for (const char* const name : {"grammar", "json_schema", "guided_json", "guided_regex",
                                 "guided_choice", "guided_grammar", "structured_outputs"}) {
    const Json* const value = fields.Find(name);
    if (value != nullptr && !IsEmpty(*value)) fields.Fail(NotOffered(name, "constrained output"));
  }
  if (const Json* const modalities = fields.Array("modalities")) {
    for (const Json& modality : *modalities) {
      if (modality != "text") fields.Fail(NotOffered("modalities", "what is not text"));
    }
  }
}

void RefuseEchoAndSuffix(FieldReader& fields) {
  if (fields.Bool("echo").value_or(false)) fields.Fail(NotOffered("echo", "repeating the prompt"));
  const auto suffix = fields.String("suffix");
  if (suffix && !suffix->empty()) fields.Fail(NotOffered("suffix", "filling in the middle"));
}

void ReadLlamaFields(FieldReader& fields, const RequestDefaults& defaults, LlamaFields& llama) {
  llama.has_token_timings = fields.Bool("timings_per_token").value_or(false);
  llama.has_progress = fields.Bool("return_progress").value_or(false);
  llama.is_verbose = fields.Bool("verbose").value_or(defaults.is_verbose);
}

void ReadTokens(FieldReader& fields, const Json& ids, size_t vocab_size,
                std::vector<TokenId>& tokens) {
  tokens.reserve(ids.size());
  for (const Json& id : ids) {
    const auto token = ToInteger(id, 0, static_cast<int64_t>(vocab_size) - 1);
    if (!token) {
      return fields.Fail(
          BadField("prompt", fmt::format("must have token ids below {} only", vocab_size)));
    }
    tokens.push_back(TokenId{static_cast<uint32_t>(*token)});
  }
}

void ReadMessages(FieldReader& fields, const ModelInfo& model, Request& request) {
  const CacheOptions cache = ReadCacheOptions(fields);
  std::vector<CacheMark> marks;
  ReadConversation(fields, model.defaults, marks, [&](const Conversation& conversation) -> Status {
    KVERN_ASSIGN_OR_RETURN(request.tokens, model.text->EncodeChat(conversation));
    request.cache.spans = SpansOf(*model.text, conversation, request.tokens, marks, cache);
    return {};
  });
}

void ReadPrompt(FieldReader& fields, const ModelText& text, Request& request) {
  if (!fields.ok()) return;
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return fields.Fail(BadField("prompt", "is missing"));
  const auto is_prompt = [](const Json& x) { return x.is_string() || x.is_array(); };
  if (prompt->is_array() && !prompt->empty() && is_prompt(prompt->front())) {
    if (prompt->size() > 1) {
      return fields.Fail(NotOffered("prompt", "several in one request (send one for each)"));
    }
    prompt = &prompt->front();
  }
  if (prompt->is_string()) {
    request.tokens = text.Encode(prompt->get_ref<const std::string&>());
  } else if (prompt->is_array()) {
    ReadTokens(fields, *prompt, text.vocab_size(), request.tokens);
  } else {
    return fields.Fail(BadField("prompt", "must be a string or an array of token ids"));
  }
  const CacheOptions cache = ReadCacheOptions(fields);
  if (!cache.keeps_all) return;
  request.cache.spans = {{.num_tokens = request.tokens.size(), .ttl_us = cache.ttl_us}};
}

void CheckLength(FieldReader& fields, const ModelInfo& model, const Request& request) {
  if (!fields.ok()) return;
  if (request.tokens.empty()) return fields.Fail(BadField("prompt", "is empty"));
  if (request.tokens.size() >= model.context) {
    fields.Fail(
        ContextExceeded({.prompt_tokens = request.tokens.size(), .context = model.context}));
  }
}

}  // namespace

std::optional<Endpoint> FindEndpoint(std::string_view path) {
  if (path == "/v1/chat/completions") return Endpoint::kChatCompletions;
  if (path == "/v1/completions") return Endpoint::kCompletions;
  return std::nullopt;
}

std::variant<ApiRequest, ApiError> ParseRequest(Endpoint endpoint, const Json& body,
                                                const ModelInfo& model) {
  if (!body.is_object()) return ApiError{.message = "the body must be a JSON object"};
  FieldReader fields(body);
  ApiRequest result;
  result.endpoint = endpoint;
  ReadSampling(fields, model.defaults, result.request.sampling);
  ReadLogitBias(fields, model.text->vocab_size(), result.request.sampling);
  ReadStops(fields, model.text->vocab_size(), result.request);
  ReadLogprobs(fields, result);
  ReadCounts(fields, model.defaults, result);
  ReadSeed(fields, model.defaults, result.request);
  ReadEngineFields(fields, model.defaults, result);
  ReadLlamaFields(fields, model.defaults, result.llama);
  RefuseFormats(fields);
  if (endpoint == Endpoint::kChatCompletions) {
    RefuseTools(fields);
    ReadMessages(fields, model, result.request);
  } else {
    RefuseEchoAndSuffix(fields);
    ReadPrompt(fields, *model.text, result.request);
  }
  CheckLength(fields, model, result.request);
  if (!fields.ok()) return *fields.error();
  if (result.llama.is_verbose) result.llama.prompt = BytesOf(*model.text, result.request.tokens);
  return result;
}

}  // namespace kvern::server
