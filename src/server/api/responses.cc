#include "server/api/responses.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/api/cache_marks.h"
#include "server/api/field_reader.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

// Content parts are those of chats under other names.
std::optional<ApiError> ReadParts(const std::string& path, const Json& content, Json& parts) {
  if (content.is_string()) {
    parts = content;
    return std::nullopt;
  }
  if (!content.is_array()) return BadField(path, "must be a string or an array of parts");
  parts = Json::array();
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_path = fmt::format("{}[{}]", path, i);
    if (!content[i].is_object()) return BadField(part_path, "must be an object with a type");
    FieldReader part(content[i]);
    const std::string type = part.String("type").value_or("");
    const auto text = part.String("text");
    if (!part.ok() || (type != "input_text" && type != "output_text" && type != "text")) {
      return NotOffered(part_path, fmt::format("parts of type '{}'", type));
    }
    if (!text) return BadField(part_path + ".text", "must be a string");
    parts.push_back({{"type", "text"}, {"text", *text}});
    if (const Json* const mark = part.Find(kCacheBreakpoint))
      parts.back()[kCacheBreakpoint] = *mark;
  }
  return std::nullopt;
}

std::optional<ApiError> ReadItem(const std::string& path, const Json& item, Json& messages) {
  if (!item.is_object()) return BadField(path, "must be an object");
  FieldReader fields(item);
  const std::string type = fields.String("type").value_or("message");
  if (!fields.ok()) return BadField(path + ".type", "must be a string");
  if (type == "reasoning") return std::nullopt;
  if (type == "function_call") {
    messages.push_back({{"role", "assistant"},
                        {"content", ""},
                        {"tool_calls",
                         {{{"id", fields.String("call_id").value_or("")},
                           {"type", "function"},
                           {"function",
                            {{"name", fields.String("name").value_or("")},
                             {"arguments", fields.String("arguments").value_or("{}")}}}}}}});
    return fields.error();
  }
  if (type == "function_call_output") {
    Json content;
    const Json* const output = fields.Find("output");
    if (output == nullptr) return BadField(path + ".output", "is missing");
    if (auto error = ReadParts(path + ".output", *output, content)) return error;
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", fields.String("call_id").value_or("")},
                        {"content", std::move(content)}});
    return fields.error();
  }
  if (type != "message") return NotOffered(path, fmt::format("items of type '{}'", type));
  const auto role = fields.String("role");
  const Json* const content = fields.Find("content");
  if (!role) return BadField(path + ".role", "must be a string");
  if (content == nullptr) return BadField(path + ".content", "is missing");
  Json parts;
  if (auto error = ReadParts(path + ".content", *content, parts)) return error;
  messages.push_back({{"role", *role}, {"content", std::move(parts)}});
  return std::nullopt;
}

std::optional<ApiError> ReadInput(FieldReader& fields, Json& messages) {
  if (const auto instructions = fields.String("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  const Json* const input = fields.Find("input");
  if (!fields.ok()) return fields.error();
  if (input == nullptr) return BadField("input", "is missing");
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return std::nullopt;
  }
  if (!input->is_array()) return BadField("input", "must be a string or an array of items");
  for (size_t i = 0; i < input->size(); ++i) {
    if (auto error = ReadItem(fmt::format("input[{}]", i), (*input)[i], messages)) return error;
  }
  return std::nullopt;
}

// What would need a memory of earlier requests, or something else that is not there.
std::optional<ApiError> RefuseFields(FieldReader& fields) {
  for (const char* const name : {"previous_response_id", "conversation", "prompt"}) {
    if (fields.Find(name) != nullptr) {
      return NotOffered(name, "what refers to something kept here (send the whole conversation)");
    }
  }
  if (fields.Bool("background").value_or(false)) {
    return NotOffered("background", "answers that are asked for later");
  }
  const Json* const text = fields.Object("text");
  if (!fields.ok()) return fields.error();
  if (text != nullptr && text->contains("format") && (*text)["format"].is_object() &&
      (*text)["format"].value("type", "text") != "text") {
    return NotOffered("text.format", "constrained output");
  }
  return std::nullopt;
}

}  // namespace

std::variant<ApiRequest, ApiError> ParseResponsesRequest(const Json& body, const ModelInfo& model) {
  FieldReader fields(body);
  Json messages = Json::array();
  if (auto error = RefuseFields(fields)) return *std::move(error);
  if (auto error = ReadInput(fields, messages)) return *std::move(error);
  Json chat = body;
  for (const char* const name :
       {"input", "instructions", "max_tokens", "n", "logprobs", "top_logprobs", "stream_options"}) {
    chat.erase(name);
  }
  chat["messages"] = std::move(messages);
  if (const Json* const count = fields.Find("max_output_tokens")) chat["max_tokens"] = *count;
  auto parsed = ParseRequest(Endpoint::kChatCompletions, chat, model);
  if (auto* error = std::get_if<ApiError>(&parsed)) {
    if (error->param == "max_tokens") error->param = "max_output_tokens";
    if (error->param && error->param->starts_with("messages")) error->param = "input";
  }
  return parsed;
}

}  // namespace kvern::server
