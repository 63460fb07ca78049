// ModelText: what a protocol needs to know of a model to make tokens of what clients send, and text
// of what they get.
//
// Safe from any thread.
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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
  bool add_generation_prompt = true;
};

class ModelText {
 public:
  virtual ~ModelText() = default;

  // Errors: kUnsupported where the model has no chat template; kInvalidArgument with the template's
  // own words.
  virtual Result<std::vector<TokenId>> EncodeChat(const Conversation& conversation) const = 0;

  // A prompt as it stands: begins as the model wants it, and special tokens in it are those tokens.
  virtual std::vector<TokenId> Encode(std::string_view prompt) const = 0;

  // What a token stands for, which need not be whole characters. REQUIRES: id < vocab_size().
  virtual std::string TokenBytes(TokenId id) const = 0;

  virtual size_t vocab_size() const = 0;
};

// Of a tokenizer, which must outlive it, and the model's chat template if it has one.
std::unique_ptr<ModelText> MakeModelText(const text::Tokenizer& tokenizer,
                                         std::optional<text::ChatTemplate> chat_template);

}  // namespace kvern::server
