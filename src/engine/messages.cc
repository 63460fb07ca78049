#include "engine/messages.h"

#include <nlohmann/json.hpp>

#include "text/chat_prompt.h"

namespace kvern::engine {

Result<std::vector<TokenId>> EncodeMessages(const text::Tokenizer& tokenizer,
                                            const text::ChatTemplate& chat_template,
                                            std::span<const ChatMessage> messages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return text::EncodeChat(tokenizer, chat_template,
                          {.messages = list, .now = text::CurrentLocalTime()});
}

}  // namespace kvern::engine
