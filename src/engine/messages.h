// Messages of a conversation to the tokens that the model answers.
#pragma once

#include <span>
#include <vector>

#include "base/result.h"
#include "kvern/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvern::engine {

// Errors: those of text::EncodeChat.
Result<std::vector<TokenId>> EncodeMessages(const text::Tokenizer& tokenizer,
                                            const text::ChatTemplate& chat_template,
                                            std::span<const ChatMessage> messages);

}  // namespace kvern::engine
