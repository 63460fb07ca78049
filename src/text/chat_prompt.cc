#include "text/chat_prompt.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace kvern::text {
namespace {

using Json = nlohmann::ordered_json;

// U+FDD0, a code point that is no character.
constexpr std::string_view kNonCharacter = "\xEF\xB7\x90";

// A string that does not occur in any message.
std::string ChooseMark(const Json& messages) {
  const std::string all = messages.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string mark(kNonCharacter);
  while (all.find(mark) != std::string::npos) mark += kNonCharacter;
  return mark;
}

// Marks every string inside `value`, however deep.
void MarkStrings(const Tokenizer& tokenizer, const std::string& mark, Json& value) {
  if (value.is_string()) {
    value = tokenizer.MarkSpecial(value.get_ref<const std::string&>(), mark);
  } else if (value.is_structured()) {
    for (Json& element : value) MarkStrings(tokenizer, mark, element);
  }
}

}  // namespace

Result<ChatTemplate> MakeChatTemplate(const Tokenizer& tokenizer, const std::string& source) {
  const auto spelling = [&](std::optional<TokenId> id) {
    return id ? tokenizer.TokenText(*id, /*render_special=*/true) : std::string();
  };
  return ChatTemplate::Create(source, spelling(tokenizer.bos()), spelling(tokenizer.eos()));
}

Result<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                        const ChatTemplate& chat_template, const ChatInput& input,
                                        std::string_view answer_start) {
  const std::string mark = ChooseMark(input.messages);
  Json messages = input.messages;
  for (Json& message : messages) {
    if (!message.is_object() || message.value("role", "") == "assistant") continue;
    if (message.contains("content")) MarkStrings(tokenizer, mark, message["content"]);
  }
  KVERN_ASSIGN_OR_RETURN(std::string text,
                         chat_template.Render({.messages = messages,
                                               .tools = input.tools,
                                               .variables = input.variables,
                                               .add_generation_prompt = input.add_generation_prompt,
                                               .now = input.now}));
  text += answer_start;
  std::vector<TokenId> tokens =
      tokenizer.Encode(text, {.add_special = false, .parse_special = true, .mark = mark});
  const auto bos = tokenizer.bos();
  if (tokenizer.adds_bos() && bos && (tokens.empty() || tokens[0] != *bos)) {
    tokens.insert(tokens.begin(), *bos);
  }
  return tokens;
}

}  // namespace kvern::text
