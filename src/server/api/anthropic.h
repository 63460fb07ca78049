// Anthropic's messages: a request's body to what the engine is asked; the answer is formatted by
// MakeAnthropicFormat() (answer_format.h).
//
// As openai.h: functions of their arguments, any thread. A messages request is read by making a
// chat request of it, so that both say the same to the model.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>

#include "server/api/openai.h"

namespace kvern::server {

// `max_tokens` is required, as Anthropic does, unless only the prompt counts.
std::variant<ApiRequest, ApiError> ParseMessagesRequest(const nlohmann::ordered_json& body,
                                                        const ModelInfo& model,
                                                        bool needs_max_tokens = true);

// {"type": "error", "error": {"type", "message"}, "request_id"}.
nlohmann::ordered_json AnthropicErrorBody(const ApiError& error, const std::string& request_id);

}  // namespace kvern::server
