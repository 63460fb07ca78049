// Messages of a chat request, in OpenAI's form, made ready for chat templates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/cache_marks.h"

namespace kvern::server {

// Checks the field "messages" and fills `prepared` with what templates expect: the role `developer`
// becomes `system`, text parts become one string, joined by newlines, and the content that a
// message with tool calls lacks is empty. All other fields stay: names, tool calls and their ids.
// Returns what is wrong, naming the message: a field of a wrong type, or a part that is no text.
// What is marked to be kept is added to `marks`, and the marks are taken out.
std::optional<ApiError> PrepareMessages(const nlohmann::ordered_json& messages,
                                        nlohmann::ordered_json& prepared,
                                        std::vector<CacheMark>& marks);

// The arguments of tool calls, which clients send as a string of JSON, become objects, as most
// templates expect them. Returns whether anything changed.
bool ParseToolArguments(nlohmann::ordered_json& messages);

}  // namespace kvern::server
