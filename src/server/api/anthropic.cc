#include "server/api/anthropic.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/cache_marks.h"
#include "server/api/field_reader.h"
#include "server/api/json_body.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

// ---- Requests

// {"type": "ephemeral", "ttl": "5m" or "1h"} at `path`, as a breakpoint of a chat. Null: none.
std::optional<ApiError> ReadCacheControl(const std::string& path, const FieldReader& block,
                                         Json& breakpoint) {
  const Json* const control = block.Find("cache_control");
  if (control == nullptr) return std::nullopt;
  if (!control->is_object()) return BadField(path, "must be an object with a type");
  FieldReader fields(*control);
  const auto type = fields.String("type"), ttl = fields.String("ttl");
  if (!fields.ok() || type != "ephemeral") return BadField(path + ".type", "must be ephemeral");
  if (ttl && *ttl != "5m" && *ttl != "1h") return BadField(path + ".ttl", "must be 5m or 1h");
  breakpoint = {{"mode", "explicit"}, {"ttl", ttl.value_or("5m")}};
  return std::nullopt;
}

// Content blocks of one message, as messages of a chat.
class BlockReader {
 public:
  BlockReader(std::string path, std::string role)
      : path_(std::move(path)), role_(std::move(role)) {}

  std::optional<ApiError> Read(const Json& content) {
    if (content.is_string()) {
      AddText(content.get<std::string>(), Json());
      return std::nullopt;
    }
    if (!content.is_array()) return BadField(path_, "must be a string or an array of blocks");
    for (size_t i = 0; i < content.size(); ++i) {
      if (auto error = ReadBlock(fmt::format("{}[{}]", path_, i), content[i])) return error;
    }
    return std::nullopt;
  }

  // What tools answered comes before what is said about it.
  void AddTo(Json& messages) {
    for (Json& result : results_) messages.push_back(std::move(result));
    if (parts_.empty() && calls_.empty() && !results_.empty()) return;
    Json message = {{"role", role_}, {"content", std::move(parts_)}};
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    if (!end_mark_.is_null()) message[kCacheBreakpoint] = std::move(end_mark_);
    messages.push_back(std::move(message));
  }

 private:
  std::optional<ApiError> ReadBlock(const std::string& path, const Json& block) {
    if (!block.is_object()) return BadField(path, "must be an object with a type");
    FieldReader fields(block);
    const std::string type = fields.String("type").value_or("");
    if (!fields.ok()) return BadField(path + ".type", "must be a string");
    Json mark;
    if (auto error = ReadCacheControl(path + ".cache_control", fields, mark)) return error;
    if (type == "text") return ReadText(path, fields, std::move(mark));
    if (type == "thinking" || type == "redacted_thinking") return std::nullopt;
    if (type == "tool_use" && role_ == "assistant") {
      if (!mark.is_null()) end_mark_ = std::move(mark);
      return ReadToolUse(path, fields, block);
    }
    if (type == "tool_result" && role_ == "user") {
      return ReadToolResult(path, fields, std::move(mark));
    }
    return NotOffered(path, fmt::format("blocks of type '{}' from the {}", type, role_));
  }

  void AddText(std::string text, Json mark) {
    Json& part = parts_.emplace_back(Json{{"type", "text"}, {"text", std::move(text)}});
    if (!mark.is_null()) part[kCacheBreakpoint] = std::move(mark);
  }

  std::optional<ApiError> ReadText(const std::string& path, FieldReader& fields, Json mark) {
    auto text = fields.String("text");
    if (!text) return BadField(path + ".text", "must be a string");
    AddText(*std::move(text), std::move(mark));
    return std::nullopt;
  }

  std::optional<ApiError> ReadToolUse(const std::string& path, FieldReader& fields,
                                      const Json& block) {
    const auto id = fields.String("id"), name = fields.String("name");
    const Json* const input = fields.Object("input");
    if (!id || !name || input == nullptr) {
      return BadField(path, "must have an id, a name and an input");
    }
    calls_.push_back({{"id", *id},
                      {"type", "function"},
                      {"function", {{"name", *name}, {"arguments", ToJsonLine(block["input"])}}}});
    return std::nullopt;
  }

  std::optional<ApiError> ReadToolResult(const std::string& path, FieldReader& fields, Json mark) {
    const auto id = fields.String("tool_use_id");
    if (!id) return BadField(path + ".tool_use_id", "must be a string");
    BlockReader content(path + ".content", "tool");
    const Json* const found = fields.Find("content");
    if (auto error = found != nullptr ? content.Read(*found) : std::nullopt) return error;
    Json result = {{"role", "tool"}, {"tool_call_id", *id}, {"content", std::move(content.parts_)}};
    if (!mark.is_null()) result[kCacheBreakpoint] = std::move(mark);
    results_.push_back(std::move(result));
    return std::nullopt;
  }

  const std::string path_, role_;
  Json parts_ = Json::array();  // of text
  Json end_mark_;
  Json calls_ = Json::array();
  std::vector<Json> results_;
};

std::optional<ApiError> ReadSystem(FieldReader& fields, Json& messages) {
  const Json* const system = fields.Find("system");
  if (system == nullptr) return std::nullopt;
  BlockReader blocks("system", "system");
  if (auto error = blocks.Read(*system)) return error;
  blocks.AddTo(messages);
  return std::nullopt;
}

std::optional<ApiError> ReadConversation(FieldReader& fields, Json& messages) {
  const Json* const list = fields.Array("messages");
  if (!fields.ok()) return fields.error();
  if (list == nullptr || list->empty()) return BadField("messages", "is missing");
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (!(*list)[i].is_object()) return BadField(path, "must be an object");
    FieldReader message((*list)[i]);
    const std::string role = message.String("role").value_or("");
    if (role != "user" && role != "assistant" && role != "system") {
      return BadField(path + ".role", "must be user or assistant");
    }
    const Json* const content = message.Find("content");
    if (content == nullptr) return BadField(path + ".content", "is missing");
    BlockReader blocks(path + ".content", role);
    if (auto error = blocks.Read(*content)) return error;
    blocks.AddTo(messages);
  }
  return std::nullopt;
}

std::optional<ApiError> RefuseToolUse(FieldReader& fields) {
  const Json* const tools = fields.Array("tools");
  const Json* const choice = fields.Object("tool_choice");
  if (!fields.ok()) return fields.error();
  const bool is_none = choice != nullptr && choice->contains("type") && (*choice)["type"] == "none";
  if (tools == nullptr || tools->empty() || is_none) return std::nullopt;
  return NotOffered("tools", "calling tools (unless tool_choice is none)");
}

const char* AnthropicErrorType(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

std::variant<ApiRequest, ApiError> ParseMessagesRequest(const Json& body, const ModelInfo& model,
                                                        bool needs_max_tokens) {
  FieldReader fields(body);
  Json messages = Json::array();
  if (auto error = RefuseToolUse(fields)) return *error;
  if (auto error = ReadSystem(fields, messages)) return *error;
  if (auto error = ReadConversation(fields, messages)) return *error;
  if (needs_max_tokens && fields.Find("max_tokens") == nullptr) {
    return BadField("max_tokens", "is missing");
  }
  Json chat = body;
  for (const char* const name :
       {"tools", "tool_choice", "system", "n", "logprobs", "prompt_cache_options"}) {
    chat.erase(name);
  }
  Json whole;  // of all that is sent
  if (auto error = ReadCacheControl("cache_control", fields, whole)) return *error;
  if (!whole.is_null()) chat["prompt_cache_options"] = {{"ttl", whole["ttl"]}};
  chat["messages"] = std::move(messages);
  if (const Json* const stops = fields.Array("stop_sequences")) chat["stop"] = *stops;
  if (!fields.ok()) return *fields.error();
  auto parsed = ParseRequest(Endpoint::kChatCompletions, chat, model);
  if (auto* error = std::get_if<ApiError>(&parsed); error != nullptr && error->param == "stop") {
    error->param = "stop_sequences";
  }
  return parsed;
}

Json AnthropicErrorBody(const ApiError& error, const std::string& request_id) {
  return {{"type", "error"},
          {"error", {{"type", AnthropicErrorType(error)}, {"message", error.message}}},
          {"request_id", request_id}};
}

}  // namespace kvern::server
