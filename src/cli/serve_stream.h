// CompletionStream: what a streamed reply of OpenAI's completions says, event by event.
//
// The bytes come from a server that need not be ours: what it leaves out is unknown, what has
// another type is passed over. One thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/ids.h"

namespace kvern::cli {

class CompletionStream {
 public:
  struct Piece {
    size_t num_tokens = 0;          // without ids: one, if there is text
    std::vector<TokenId> ids = {};  // where the server says them
  };

  // The data of one event. None: it brought no token.
  std::optional<Piece> Take(std::string_view data);

  bool has_ended() const { return has_ended_; }  // with [DONE], or a reason
  const std::string& text() const { return text_; }
  const std::optional<std::string>& error() const { return error_; }
  // Of the usage.
  const std::optional<size_t>& completion_tokens() const { return completion_tokens_; }
  const std::optional<size_t>& cached_tokens() const { return cached_tokens_; }

 private:
  std::string text_;
  bool has_ended_ = false;
  std::optional<std::string> error_;
  std::optional<size_t> completion_tokens_, cached_tokens_;
};

// What an error reply says: its JSON's message, or else the beginning of its text, as one line.
std::string ErrorMessage(std::string_view body);

// The ids of {"tokens": [id, …]}. None: it is no such thing.
std::optional<std::vector<TokenId>> ParseTokens(std::string_view body);

// The name of the first model of /v1/models. None: it is no such thing.
std::optional<std::string> ParseModelName(std::string_view body);

}  // namespace kvern::cli
