// OpenAI's responses: a request's body to what the engine is asked. The answer is formatted by
// MakeResponsesFormat() (answer_format.h). Nothing is kept: a client sends the whole conversation.
//
// As openai.h: functions of their arguments, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <variant>

#include "server/api/openai.h"

namespace kvern::server {

std::variant<ApiRequest, ApiError> ParseResponsesRequest(const nlohmann::ordered_json& body,
                                                         const ModelInfo& model);

}  // namespace kvern::server
