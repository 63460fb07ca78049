#include "text/chat_template.h"

#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/jinja/json.h"

namespace kvern::text {
namespace {

Error Prefixed(const Error& error) {
  return Errorf(error.code, "chat template, {}", error.message);
}

Status SetJson(jinja::Dict& context, const std::string& name, const nlohmann::ordered_json& json) {
  Result<jinja::Value> value = jinja::FromJson(json);
  if (!value.ok()) return Errorf(value.error().code, "{}: {}", name, value.error().message);
  context.Set(name, std::move(value).value());
  return {};
}

}  // namespace

Result<ChatTemplate> ChatTemplate::Create(const std::string& source, std::string bos_token,
                                          std::string eos_token) {
  Result<jinja::Template> parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return Prefixed(parsed.error());
  return ChatTemplate(std::move(parsed).value(), std::move(bos_token), std::move(eos_token));
}

Result<std::string> ChatTemplate::Render(const ChatInput& input) const {
  jinja::Dict context;
  context.Set("bos_token", jinja::Value::MakeString(bos_token_));
  context.Set("eos_token", jinja::Value::MakeString(eos_token_));
  // Both are always there, as in the transformers library: templates test them against none.
  context.Set("tools", jinja::Value::None());
  context.Set("documents", jinja::Value::None());
  context.Set("add_generation_prompt", jinja::Value::Bool(input.add_generation_prompt));
  KVERN_RETURN_IF_ERROR(SetJson(context, "messages", input.messages));
  if (input.tools != nullptr) KVERN_RETURN_IF_ERROR(SetJson(context, "tools", *input.tools));
  if (input.variables != nullptr) {
    for (const auto& [name, json] : input.variables->items()) {
      KVERN_RETURN_IF_ERROR(SetJson(context, name, json));
    }
  }
  Result<std::string> text = template_.Render(context, input.now);
  if (!text.ok()) return Prefixed(text.error());
  return text;
}

jinja::LocalTime CurrentLocalTime() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return {local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
          local.tm_hour,        local.tm_min,     local.tm_sec};
}

}  // namespace kvern::text
