// ApiError: what a client is told when its request fails, and the HTTP status of it. Plain data.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/result.h"

namespace kvern::server {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::optional<std::string> param = {};  // the field, as in "messages[2].content"
  std::optional<std::string> code = {};
  int retry_after_s = 1;  // of 429 and 503

  struct ContextSize {
    size_t prompt_tokens;
    size_t context;
  };
  std::optional<ContextSize> context_size = {};  // of a prompt that is longer than the context
};

ApiError BadField(std::string param, const std::string& problem);
ApiError NotOffered(std::string param, const std::string& what);
ApiError ContextExceeded(ApiError::ContextSize size);

// An error of the engine or of its parts.
ApiError ToApiError(const Error& error);

// {"error": {"message", "type", "param", "code"}}, OpenAI's form. One whose context is exceeded has
// llama.cpp's n_prompt_tokens and n_ctx beside them.
nlohmann::ordered_json ErrorBody(const ApiError& error);

}  // namespace kvern::server
