// ChatTemplate: turns a conversation into the text that a model was trained on.
//
// The template is the model's own (tokenizer.chat_template in its GGUF), in the Jinja subset of
// docs/chat-templates.md, or a built-in one by the name that llama.cpp users know.
//
// Immutable and thread-safe; copies are cheap. Messages come from users: rendering is bounded in
// time, depth and memory, and the result must be tokenized so that only the template's own text may
// become special tokens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/template.h"

namespace kvern::text {

// A conversation, as the transformers library passes it to templates.
struct ChatInput {
  // An array of messages: {"role": ..., "content": ...} and what else the template knows of:
  // name, tool_calls, tool_call_id, reasoning_content. Content is a string or an array of parts.
  // REQUIRES: `messages` outlives the call, as do the others.
  const nlohmann::ordered_json& messages;
  const nlohmann::ordered_json* tools = nullptr;      // an array of function descriptions, or null
  const nlohmann::ordered_json* variables = nullptr;  // an object: more variables, or null
  bool add_generation_prompt = true;
  jinja::LocalTime now;  // what strftime_now() sees
};

class ChatTemplate {
 public:
  // The tokens are strings such as "<s>"; empty where the model has none.
  static Result<ChatTemplate> Create(const std::string& source, std::string bos_token,
                                     std::string eos_token);

  // kInvalidArgument with the template's own words when it refuses the conversation; other errors
  // as in jinja/template.h. All are prefixed with "chat template, line N: ".
  Result<std::string> Render(const ChatInput& input) const;

 private:
  ChatTemplate(jinja::Template parsed, std::string bos_token, std::string eos_token)
      : template_(std::move(parsed)),
        bos_token_(std::move(bos_token)),
        eos_token_(std::move(eos_token)) {}

  jinja::Template template_;
  std::string bos_token_;
  std::string eos_token_;
};

// A template by name, for --chat-template.
struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;
};
std::span<const BuiltinTemplate> BuiltinTemplates();
std::optional<std::string_view> FindBuiltinTemplate(std::string_view name);

// The local time of the machine, for ChatInput::now.
jinja::LocalTime CurrentLocalTime();

}  // namespace kvern::text
