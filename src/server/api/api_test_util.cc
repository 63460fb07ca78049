#include "server/api/api_test_util.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace kvern::server {

Result<std::vector<TokenId>> LetterText::EncodeChat(const Conversation& conversation) const {
  std::string text;
  for (const auto& message : conversation.messages) {
    if (message["role"] == "robot") return Errorf(ErrorCode::kInvalidArgument, "no robots");
    text += message["role"].get<std::string>() + ":";
    if (message.contains("content")) text += message["content"].dump();
    if (message.contains("tool_calls")) text += message["tool_calls"].dump();
    text += ";";
  }
  if (conversation.variables != nullptr) text += conversation.variables->dump();
  if (conversation.tools != nullptr) text += conversation.tools->dump();
  if (conversation.add_generation_prompt) text += "assistant:";
  text += conversation.answer_start;
  return Encode(text);
}

std::vector<TokenId> LetterText::Encode(std::string_view prompt) const {
  std::vector<TokenId> tokens;
  for (const char c : prompt) tokens.push_back(TokenId{static_cast<unsigned char>(c)});
  return tokens;
}

std::string LetterText::TokenBytes(TokenId id) const {
  return std::string(1, static_cast<char>(id));
}

std::string TextOf(const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId id : tokens) text += static_cast<char>(id);
  return text;
}

Completion Say(const std::string& text, float logprob, bool has_top) {
  Completion completion{.tokens = {}, .text = text};
  for (const char c : text) {
    SampledToken token{TokenId{static_cast<unsigned char>(c)}, logprob, {}};
    if (has_top) token.top = {{TokenId{'x'}, -0.25f}, {TokenId{'y'}, -1.5f}};
    completion.tokens.push_back(std::move(token));
  }
  return completion;
}

}  // namespace kvern::server
