// llama.cpp's own completion endpoint: a request's body to what the engine is asked. The answer is
// formatted by MakeLlamaFormat() (answer_format.h).
//
// As openai.h: functions of their arguments, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <variant>

#include "server/api/openai.h"

namespace kvern::server {

// Sampling has llama.cpp's defaults, unlike OpenAI's endpoints.
std::variant<ApiRequest, ApiError> ParseLlamaRequest(const nlohmann::ordered_json& body,
                                                     const ModelInfo& model);

// "timings": tokens and milliseconds of the prompt and of the answer. REQUIRES: it has ended.
nlohmann::ordered_json TimingsOf(const Report& report);

}  // namespace kvern::server
