// llama.cpp's endpoints between text and tokens.
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "server/api/chat_messages.h"
#include "server/api/field_reader.h"
#include "server/api/routes.h"
#include "text/utf8.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

// A token's text, or its bytes where they are no text.
Json PieceOf(const Serving& serving, TokenId id) {
  const std::string bytes = serving.text->TokenBytes(id);
  text::Utf8Stream stream;
  if (stream.Push(bytes) == bytes) return bytes;
  Json codes = Json::array();
  for (const char c : bytes) codes.push_back(static_cast<unsigned char>(c));
  return codes;
}

}  // namespace

void HandleTokenize(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  FieldReader fields(*body);
  const std::string content = fields.String("content").value_or("");
  const text::EncodeOptions options = {
      .add_special = fields.Bool("add_special").value_or(false),
      .parse_special = fields.Bool("parse_special").value_or(true)};
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  if (!fields.ok()) return call.Fail(*fields.error());
  Json tokens = Json::array();
  for (const TokenId id : call.serving().tokenizer->Encode(content, options)) {
    const auto number = static_cast<uint32_t>(id);
    if (with_pieces) {
      tokens.push_back({{"id", number}, {"piece", PieceOf(call.serving(), id)}});
    } else {
      tokens.push_back(number);
    }
  }
  call.Reply({{"tokens", std::move(tokens)}});
}

void HandleDetokenize(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  FieldReader fields(*body);
  const Json* const list = fields.Array("tokens");
  if (!fields.ok()) return call.Fail(*fields.error());
  std::vector<TokenId> tokens;
  const size_t vocab_size = call.serving().text->vocab_size();
  for (const Json& entry : list != nullptr ? *list : Json::array()) {
    const auto id = ToInteger(entry, 0, static_cast<int64_t>(vocab_size) - 1);
    if (!id) {
      return call.Fail(BadField("tokens", fmt::format("must be token ids below {}", vocab_size)));
    }
    tokens.push_back(TokenId{static_cast<uint32_t>(*id)});
  }
  call.Reply({{"content", call.serving().tokenizer->Decode(tokens, /*render_special=*/true)}});
}

void HandleApplyTemplate(const Call& call) {
  const auto body = call.ReadJson();
  if (!body) return;
  FieldReader fields(*body);
  const bool add_generation_prompt = fields.Bool("add_generation_prompt").value_or(true);
  const Json* const variables = fields.Object("chat_template_kwargs");
  const Json* const messages = fields.Array("messages");
  if (!fields.ok()) return call.Fail(*fields.error());
  if (messages == nullptr) return call.Fail(BadField("messages", "is missing"));
  if (call.serving().chat_template == nullptr) {
    return call.Fail({.message = "the model has no chat template"});
  }
  Json prepared;
  std::vector<CacheMark> marks;  // change nothing here
  if (const auto error = PrepareMessages(*messages, prepared, marks)) return call.Fail(*error);
  const auto prompt =
      call.serving().chat_template->Render({.messages = prepared,
                                            .variables = variables,
                                            .add_generation_prompt = add_generation_prompt,
                                            .now = text::CurrentLocalTime()});
  if (!prompt.ok()) return call.Fail({.message = prompt.error().message, .param = "messages"});
  call.Reply({{"prompt", *prompt}});
}

}  // namespace kvern::server
