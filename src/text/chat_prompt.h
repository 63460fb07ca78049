// Chat prompts: a conversation to the tokens that the model continues.
//
// Renders the conversation with its template and tokenizes the result so that special tokens in it
// come from the template (and from the model's own earlier replies) only: whatever a user, system
// or tool message spells like a special token stays text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/ids.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvern::text {

// The template of `source` with the spellings of the tokenizer's BOS and EOS, as templates print
// them. Errors: those of ChatTemplate::Create.
Result<ChatTemplate> MakeChatTemplate(const Tokenizer& tokenizer, const std::string& source);

// Starts with BOS once where the model wants it, whether or not the template writes it. Ends with
// `answer_start`, for the model to go on with. Errors: those of ChatTemplate::Render.
Result<std::vector<TokenId>> EncodeChat(const Tokenizer& tokenizer,
                                        const ChatTemplate& chat_template, const ChatInput& input,
                                        std::string_view answer_start = {});

}  // namespace kvern::text
