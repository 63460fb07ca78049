// llama.cpp's own completion endpoint: a request's body to what the engine is asked. The answer is
// formatted by MakeLlamaFormat() (answer_format.h).
//
// As openai.h: functions of their arguments, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <variant>

#include "server/api/openai.h"

namespace kvern::server {

// Sampling has llama.cpp's defaults, unlike OpenAI's endpoints. One prompt: text, tokens, both in
// an array, or {"prompt_string": text}.
std::variant<ApiRequest, ApiError> ParseLlamaRequest(const nlohmann::ordered_json& body,
                                                     const ModelInfo& model);

// Whether the prompt of a body is several, each of which is a request.
bool HasSeveralPrompts(const nlohmann::ordered_json& body);

}  // namespace kvern::server
