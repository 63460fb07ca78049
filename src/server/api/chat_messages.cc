#include "server/api/chat_messages.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/api/json_body.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

const Json* FindString(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? &*found : nullptr;
}

// The text of one part, added to `text`.
std::optional<ApiError> AddPart(const std::string& path, const Json& part, std::string& text,
                                std::vector<CacheMark>& marks) {
  const Json* const type = part.is_object() ? FindString(part, "type") : nullptr;
  if (type == nullptr) return BadField(path, "must be an object with a type");
  const auto name = type->get<std::string>();
  if (name != "text" && name != "refusal") return NotOffered(path, "parts of type " + name);
  const Json* const value = FindString(part, name.c_str());
  if (value == nullptr) return BadField(path + "." + name, "must be a string");
  if (!text.empty()) text += '\n';
  text += value->get_ref<const std::string&>();
  const auto breakpoint = part.find(kCacheBreakpoint);
  if (breakpoint == part.end() || breakpoint->is_null()) return std::nullopt;
  CacheMark& mark = marks.emplace_back();
  mark.content_bytes = text.size();
  return ReadBreakpoint(fmt::format("{}.{}", path, kCacheBreakpoint), *breakpoint, mark.ttl_us);
}

std::optional<ApiError> PrepareContent(const std::string& path, Json& message,
                                       std::vector<CacheMark>& marks) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (!message.contains("tool_calls") && !message.contains("function_call") &&
        !message.contains("refusal")) {
      return BadField(path, "is missing");
    }
    message["content"] = "";  // templates add it to text
    return std::nullopt;
  }
  if (content->is_string()) return std::nullopt;
  if (!content->is_array()) return BadField(path, "must be a string or an array of text parts");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    auto error = AddPart(fmt::format("{}[{}]", path, i), (*content)[i], text, marks);
    if (error) return error;
  }
  *content = std::move(text);
  return std::nullopt;
}

// The function of a tool call, if the call has the form that one has.
Json* FindFunction(Json& call) {
  if (!call.is_object()) return nullptr;
  const auto function = call.find("function");
  return function != call.end() && function->is_object() ? &*function : nullptr;
}

bool ParseArguments(Json& function) {
  const Json* const text = FindString(function, "arguments");
  if (text == nullptr) return false;
  auto arguments = ParseJson(text->get_ref<const std::string&>());
  if (!arguments.ok() || !arguments->is_object()) return false;
  function["arguments"] = std::move(arguments).value();
  return true;
}

}  // namespace

std::optional<ApiError> PrepareMessages(const Json& messages, Json& prepared,
                                        std::vector<CacheMark>& marks) {
  if (!messages.is_array() || messages.empty()) {
    return BadField("messages", "must be an array of at least one message");
  }
  prepared = messages;
  for (size_t i = 0; i < prepared.size(); ++i) {
    Json& message = prepared[i];
    const std::string path = fmt::format("messages[{}]", i);
    if (!message.is_object()) return BadField(path, "must be an object");
    const Json* const role = FindString(message, "role");
    if (role == nullptr) return BadField(path + ".role", "must be a string");
    if (*role == "developer") message["role"] = "system";
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
      if (!calls->is_array() && !calls->is_null()) {
        return BadField(path + ".tool_calls", "must be an array");
      }
    }
    const size_t num_marks = marks.size();
    if (auto error = PrepareContent(path + ".content", message, marks)) return error;
    if (const auto mark = message.find(kCacheBreakpoint); mark != message.end()) {
      CacheMark& whole = marks.emplace_back();
      if (auto error =
              ReadBreakpoint(fmt::format("{}.{}", path, kCacheBreakpoint), *mark, whole.ttl_us)) {
        return error;
      }
      message.erase(mark);
    }
    for (size_t k = num_marks; k < marks.size(); ++k) marks[k].message = i;
  }
  return std::nullopt;
}

bool ParseToolArguments(Json& messages) {
  bool has_changed = false;
  for (Json& message : messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      Json* const function = FindFunction(call);
      if (function != nullptr && ParseArguments(*function)) has_changed = true;
    }
  }
  return has_changed;
}

}  // namespace kvern::server
