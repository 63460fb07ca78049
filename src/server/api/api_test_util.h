// LetterText: a model whose tokens are bytes, for tests of protocols.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kvern/engine.h"
#include "server/api/model_text.h"

namespace kvern::server {

// Token i is the byte i. A conversation is "role:content;" of each message, then "assistant:". The
// role "robot" is refused.
class LetterText final : public ModelText {
 public:
  Result<std::vector<TokenId>> EncodeChat(const Conversation& conversation) const override;
  std::vector<TokenId> Encode(std::string_view prompt) const override;
  std::vector<TokenId> EncodeMore(std::string_view text) const override { return Encode(text); }
  std::string TokenBytes(TokenId id) const override;
  size_t vocab_size() const override { return 256; }
  std::vector<TokenId> end_of_generation() const override { return {TokenId{0}}; }
};

std::string TextOf(const std::vector<TokenId>& tokens);

// A completion that says `text`, each token with `logprob`, and the alternatives 'x' and 'y'.
Completion Say(const std::string& text, float logprob, bool has_top = false);

}  // namespace kvern::server
