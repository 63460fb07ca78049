#include "server/api/llama.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/field_reader.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr double kMaxTopK = 1 << 30;
// Sampled probabilities are those of the tokens that top-k lets through.
constexpr int32_t kMaxSampledTopK = 256;
constexpr size_t kMaxProbs = 20;
constexpr double kNever = -1e9;

// What clients leave away, as llama.cpp's documentation has it.
RequestDefaults LlamaDefaults(const RequestDefaults& server) {
  RequestDefaults defaults = server;
  defaults.temperature = server.temperature.value_or(0.8f);
  defaults.top_k = server.top_k.value_or(40);
  defaults.top_p = server.top_p.value_or(0.95f);
  defaults.min_p = server.min_p.value_or(0.05f);
  return defaults;
}

// Adds the bias of what a client calls a token: an id, or a text, whose tokens all have it.
std::optional<ApiError> AddBias(const Json& key, const Json& bias, const ModelText& text,
                                Json& biases) {
  if (!bias.is_number() && bias != false) {
    return BadField("logit_bias", "must have numbers, or false for what may not be said");
  }
  const Json value = bias.is_number() ? bias : Json(kNever);
  if (key.is_number_unsigned()) {
    biases[fmt::format("{}", key.get<uint64_t>())] = value;
    return std::nullopt;
  }
  if (!key.is_string()) return BadField("logit_bias", "must be of token ids or texts");
  const auto& name = key.get_ref<const std::string&>();
  uint64_t id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  if (error == std::errc() && end == name.data() + name.size()) {
    biases[name] = value;
    return std::nullopt;
  }
  for (const TokenId token : text.EncodeMore(name)) {
    biases[fmt::format("{}", static_cast<uint32_t>(token))] = value;
  }
  return std::nullopt;
}

// Biases come as [[token, bias], …] or {token: bias, …}; as in OpenAI's form afterwards.
std::optional<ApiError> ReadBiases(Json& body, const ModelText& text) {
  const auto found = body.find("logit_bias");
  if (found == body.end() || !found->is_structured()) return std::nullopt;
  Json biases = Json::object();
  for (const auto& [key, entry] : found->items()) {
    if (found->is_array() && !(entry.is_array() && entry.size() == 2)) {
      return BadField("logit_bias", "must be pairs of a token and a number or false");
    }
    auto error = found->is_array() ? AddBias(entry[0], entry[1], text, biases)
                                   : AddBias(Json(key), entry, text, biases);
    if (error) return error;
  }
  *found = std::move(biases);
  return std::nullopt;
}

bool IsMixed(const Json& prompt) {
  const auto is_string = [](const Json& x) { return x.is_string(); };
  const auto is_number = [](const Json& x) { return x.is_number(); };
  return prompt.is_array() && std::ranges::any_of(prompt, is_number) &&
         std::ranges::any_of(prompt, is_string);
}

// Texts between ids become ids.
void EncodeMixed(const ModelText& text, Json& prompt) {
  Json ids = Json::array();
  for (const Json& part : prompt) {
    if (!part.is_string()) {
      ids.push_back(part);
      continue;
    }
    const auto& words = part.get_ref<const std::string&>();
    for (const TokenId id : ids.empty() ? text.Encode(words) : text.EncodeMore(words)) {
      ids.push_back(static_cast<uint32_t>(id));
    }
  }
  prompt = std::move(ids);
}

std::optional<ApiError> ReadLlamaPrompt(Json& body, const ModelText& text) {
  const auto prompt = body.find("prompt");
  if (prompt == body.end()) return std::nullopt;
  if (prompt->is_object()) {
    FieldReader fields(*prompt);
    const auto words = fields.String("prompt_string");
    const Json* const media = fields.Find("multimodal_data");
    if (media != nullptr && !media->empty()) {
      return NotOffered("prompt.multimodal_data", "what is not text");
    }
    if (!words) return BadField("prompt.prompt_string", "must be a string");
    *prompt = *words;
  } else if (IsMixed(*prompt)) {
    EncodeMixed(text, *prompt);
  }
  return std::nullopt;
}

void ReadShownFields(FieldReader& fields, LlamaFields& llama) {
  const Json* const names = fields.Array("response_fields");
  if (names == nullptr) return;
  for (const Json& name : *names) {
    if (!name.is_string()) {
      return fields.Fail(BadField("response_fields", "must be an array of strings"));
    }
    llama.shown.push_back(name.get<std::string>());
  }
}

// Candidates are known where nothing but the temperature and cuts change what the model says.
bool AreCandidatesKnown(const SamplingParams& params) {
  return params.temperature == 0 ||
         (params.top_k > 0 && params.top_k <= kMaxSampledTopK && params.logit_bias.empty() &&
          params.presence_penalty == 0 && params.frequency_penalty == 0 &&
          params.repetition_penalty == 1);
}

std::optional<ApiError> ReadOwnFields(const Json& body, const ModelInfo& model,
                                      ApiRequest& request) {
  FieldReader fields(body);
  LlamaFields& llama = request.llama;
  SamplingParams& sampling = request.request.sampling;
  llama.has_tokens = fields.Bool("return_tokens").value_or(false);
  llama.num_probs = fields.Count("n_probs", 0, kMaxProbs).value_or(0);
  llama.has_sampled_probs = fields.Bool("post_sampling_probs").value_or(false);
  ReadShownFields(fields, llama);
  sampling.num_logprobs = static_cast<int32_t>(llama.num_probs);
  if (llama.num_probs > 0 && llama.has_sampled_probs) {
    if (!AreCandidatesKnown(sampling)) {
      fields.Fail(
          NotOffered("post_sampling_probs",
                     fmt::format("them without top_k from 1 to {}, or with penalties or logit_bias",
                                 kMaxSampledTopK)));
    }
    sampling.num_logprobs =
        sampling.temperature == 0
            ? 1
            : std::min(sampling.top_k, static_cast<int32_t>(model.text->vocab_size()));
  }
  // Prompt and answer together fit into the context, as in llama.cpp.
  const size_t rest = model.context - request.request.tokens.size();
  request.request.max_tokens = std::min(request.request.max_tokens.value_or(rest), rest);
  if (request.request.ignore_end) llama.ignored_ends = model.text->end_of_generation();
  llama.prompt = BytesOf(*model.text, request.request.tokens);
  return fields.error();
}

}  // namespace

bool HasSeveralPrompts(const Json& body) {
  const auto prompt = body.find("prompt");
  if (prompt == body.end() || !prompt->is_array() || IsMixed(*prompt)) return false;
  return std::ranges::any_of(*prompt, [](const Json& part) { return !part.is_number(); });
}

std::variant<ApiRequest, ApiError> ParseLlamaRequest(const Json& body, const ModelInfo& model) {
  Json asked = body;
  ModelInfo info = model;
  info.defaults = LlamaDefaults(model.defaults);
  // Their numbers may be floats; one that is no integer is refused below.
  if (const auto top_k = asked.find("top_k"); top_k != asked.end() && top_k->is_number_float()) {
    const double value = top_k->get<double>();
    if (std::abs(value) < kMaxTopK) *top_k = static_cast<int64_t>(value);
  }
  asked.erase("logprobs");
  if (const auto count = asked.find("n_predict"); count != asked.end()) {
    asked["max_tokens"] = *count;
  }
  if (auto error = ReadBiases(asked, *model.text)) return *std::move(error);
  if (auto error = ReadLlamaPrompt(asked, *model.text)) return *std::move(error);
  auto parsed = ParseRequest(Endpoint::kCompletions, asked, info);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    if (error->param == "max_tokens" && body.contains("n_predict")) error->param = "n_predict";
    return parsed;
  }
  if (auto error = ReadOwnFields(body, model, std::get<ApiRequest>(parsed))) {
    return *std::move(error);
  }
  return parsed;
}

}  // namespace kvern::server
