#include "server/api/conversation.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/api/chat_messages.h"
#include "server/api/json_body.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

bool IsOfAssistant(const Json& message) {
  return message.is_object() && message.contains("role") && message["role"] == "assistant";
}

// Whether the last message is to be gone on with.
bool GoesOn(FieldReader& fields, const Json& messages) {
  const auto asked = fields.Bool("continue_final_message");
  const auto adds_prompt = fields.Bool("add_generation_prompt");
  if (!fields.ok()) return false;
  if (asked == true && adds_prompt == true) {
    fields.Fail(
        BadField("continue_final_message", "cannot be true where add_generation_prompt is"));
    return false;
  }
  if (asked == false || !messages.is_array() || messages.empty()) return false;
  const Json& last = messages.back();
  const bool has_calls = last.is_object() && last.contains("tool_calls") &&
                         last["tool_calls"].is_array() && !last["tool_calls"].empty();
  if (!IsOfAssistant(last) || has_calls) {
    if (asked) {
      fields.Fail(BadField("continue_final_message",
                           "needs a last message of the assistant, without tool calls"));
    }
    return false;
  }
  if (!asked && messages.size() > 1 && IsOfAssistant(messages[messages.size() - 2])) {
    fields.Fail(BadField("messages", "must not end with two messages of the assistant"));
    return false;
  }
  return true;
}

// Parts are joined by a newline; those of the text to go on with by two, as llama-server does.
void SeparateParts(Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  Json parts = Json::array();
  for (Json& part : *content) {
    if (!parts.empty()) parts.push_back({{"type", "text"}, {"text", ""}});
    parts.push_back(std::move(part));
  }
  *content = std::move(parts);
}

constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

}  // namespace

void ReadConversation(FieldReader& fields, const RequestDefaults& defaults,
                      std::vector<CacheMark>& marks,
                      const std::function<Status(const Conversation&)>& use) {
  const Json* const asked = fields.Object("chat_template_kwargs");
  const Json* const tools = fields.Array("tools");
  const bool adds_prompt = fields.Bool("add_generation_prompt").value_or(true);
  if (!fields.ok()) return;
  const Json* const list = fields.Find("messages");
  if (list == nullptr) return fields.Fail(BadField("messages", "is missing"));
  Json messages = *list;
  const bool goes_on = GoesOn(fields, messages);
  if (!fields.ok()) return;
  if (goes_on) SeparateParts(messages.back());
  Json prepared;
  if (auto error = PrepareMessages(messages, prepared, marks)) {
    return fields.Fail(std::move(*error));
  }
  std::string answer_start;
  if (goes_on) {
    answer_start = prepared.back()["content"].get<std::string>();
    prepared.erase(prepared.size() - 1);
  }
  Json variables = asked != nullptr ? *asked : Json();
  if (defaults.thinking && (asked == nullptr || !asked->contains("enable_thinking"))) {
    variables["enable_thinking"] = *defaults.thinking;
  }
  const auto try_with = [&](const Json& shown) {
    return use({.messages = shown,
                .variables = variables.is_null() ? nullptr : &variables,
                .tools = tools != nullptr && !tools->empty() ? tools : nullptr,
                .add_generation_prompt = adds_prompt || goes_on,
                .answer_start = answer_start});
  };
  // Templates differ in what they take as the arguments of a tool call: most want an object.
  Json parsed = prepared;
  if (ParseToolArguments(parsed) && try_with(parsed).ok()) return;
  const Status status = try_with(prepared);
  // Whatever the template could not do, it was with this conversation.
  if (!status.ok()) fields.Fail({.message = status.error().message, .param = "messages"});
}

Json TemplateVariables(const Conversation& conversation, const text::jinja::LocalTime& now) {
  const char* const month = kMonths[size_t(now.month - 1)];
  Json variables = {
      {"datetime", fmt::format("{} {:02} {} {:02}:{:02}:{:02}", month, now.day, now.year, now.hour,
                               now.minute, now.second)},
      {"date_string", fmt::format("{:02} {} {}", now.day, month, now.year)},
      {"enable_thinking", true},
      {"functions", conversation.tools != nullptr ? ToJsonLine(*conversation.tools) : ""}};
  if (conversation.variables != nullptr) variables.update(*conversation.variables);
  return variables;
}

}  // namespace kvern::server
