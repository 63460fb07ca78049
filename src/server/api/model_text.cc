#include "server/api/model_text.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "server/api/conversation.h"
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
    const text::jinja::LocalTime now = text::CurrentLocalTime();
    const auto variables = TemplateVariables(conversation, now);
    return text::EncodeChat(tokenizer_, *template_,
                            {.messages = conversation.messages,
                             .tools = conversation.tools,
                             .variables = &variables,
                             .add_generation_prompt = conversation.add_generation_prompt,
                             .now = now},
                            conversation.answer_start);
  }

  std::vector<TokenId> Encode(std::string_view prompt) const override {
    return tokenizer_.Encode(prompt, {.add_special = true, .parse_special = true});
  }

  std::vector<TokenId> EncodeMore(std::string_view text) const override {
    return tokenizer_.Encode(text, {.add_special = false, .parse_special = true});
  }

  std::string TokenBytes(TokenId id) const override {
    return tokenizer_.TokenText(id, /*render_special=*/true);
  }

  size_t vocab_size() const override { return tokenizer_.size(); }

  std::vector<TokenId> end_of_generation() const override {
    const auto ids = tokenizer_.end_of_generation();
    return {ids.begin(), ids.end()};
  }

 private:
  const text::Tokenizer& tokenizer_;
  const std::optional<text::ChatTemplate> template_;
};

}  // namespace

std::string BytesOf(const ModelText& text, std::span<const TokenId> tokens) {
  std::string bytes;
  for (const TokenId id : tokens) bytes += text.TokenBytes(id);
  return bytes;
}

std::unique_ptr<ModelText> MakeModelText(const text::Tokenizer& tokenizer,
                                         std::optional<text::ChatTemplate> chat_template) {
  return std::make_unique<TokenizerText>(tokenizer, std::move(chat_template));
}

}  // namespace kvern::server
