// ModelText: what a protocol needs to know of a model to make tokens of what clients send, and text
// of what they get.
//
// Safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kvern/ids.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kvern::server {

// A conversation in the form of the transformers library (text/chat_template.h).
struct Conversation {
  const nlohmann::ordered_json& messages;             // must outlive the call
  const nlohmann::ordered_json* variables = nullptr;  // more variables of the template, or null
  const nlohmann::ordered_json* tools = nullptr;      // descriptions of functions, or null
  bool add_generation_prompt = true;
  std::string_view answer_start = {};  // what the answer begins with, and does not repeat
};

class ModelText {
 public:
  virtual ~ModelText() = default;

  // Errors: kUnsupported where the model has no chat template; kInvalidArgument with the template's
  // own words.
  virtual Result<std::vector<TokenId>> EncodeChat(const Conversation& conversation) const = 0;

  // A prompt as it stands: begins as the model wants it, and special tokens in it are those tokens.
  virtual std::vector<TokenId> Encode(std::string_view prompt) const = 0;

  // A text that goes on another: special tokens in it are those tokens.
  virtual std::vector<TokenId> EncodeMore(std::string_view text) const = 0;

  // What a token stands for, which need not be whole characters. REQUIRES: id < vocab_size().
  virtual std::string TokenBytes(TokenId id) const = 0;

  virtual size_t vocab_size() const = 0;

  // Tokens that end an answer.
  virtual std::vector<TokenId> end_of_generation() const = 0;
};

// Of tokens together.
std::string BytesOf(const ModelText& text, std::span<const TokenId> tokens);

// Of a tokenizer, which must outlive it, and the model's chat template if it has one.
std::unique_ptr<ModelText> MakeModelText(const text::Tokenizer& tokenizer,
                                         std::optional<text::ChatTemplate> chat_template);

}  // namespace kvern::server
