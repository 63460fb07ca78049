#include "server/api/model_text.h"

#include <utility>

#include "text/chat_prompt.h"

namespace kvern::server {
namespace {

class TokenizerText final : public ModelText {
 public:
  TokenizerText(const text::Tokenizer& tokenizer, std::optional<text::ChatTemplate> chat_template)
      : tokenizer_(tokenizer), template_(std::move(chat_template)) {}

  Result<std::vector<TokenId>> EncodeChat(const Conversation& conversation) const override {
    if (!template_) {
      return Errorf(ErrorCode::kUnsupported,
                    "the model has no chat template: send its prompt to /v1/completions");
    }
    return text::EncodeChat(tokenizer_, *template_,
                            {.messages = conversation.messages,
                             .variables = conversation.variables,
                             .add_generation_prompt = conversation.add_generation_prompt,
                             .now = text::CurrentLocalTime()});
  }

  std::vector<TokenId> Encode(std::string_view prompt) const override {
    return tokenizer_.Encode(prompt, {.add_special = true, .parse_special = true});
  }

  std::string TokenBytes(TokenId id) const override {
    return tokenizer_.TokenText(id, /*render_special=*/true);
  }

  size_t vocab_size() const override { return tokenizer_.size(); }

 private:
  const text::Tokenizer& tokenizer_;
  const std::optional<text::ChatTemplate> template_;
};

}  // namespace

std::unique_ptr<ModelText> MakeModelText(const text::Tokenizer& tokenizer,
                                         std::optional<text::ChatTemplate> chat_template) {
  return std::make_unique<TokenizerText>(tokenizer, std::move(chat_template));
}

}  // namespace kvern::server
