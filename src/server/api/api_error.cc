#include "server/api/api_error.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace kvern::server {

ApiError BadField(std::string param, const std::string& problem) {
  std::string message = fmt::format("{}: {}", param, problem);
  return {.message = std::move(message), .param = std::move(param)};
}

ApiError NotOffered(std::string param, const std::string& what) {
  ApiError error = BadField(std::move(param), what + ": not offered yet");
  error.code = "not_offered";
  return error;
}

ApiError ContextExceeded(ApiError::ContextSize size) {
  // Gateways look for these words and this type.
  return {.type = "exceed_context_size_error",
          .message = fmt::format("the prompt ({} tokens) exceeds the available context size ({} "
                                 "tokens): shorten it or start with a larger context",
                                 size.prompt_tokens, size.context),
          .code = "context_length_exceeded",
          .context_size = size};
}

ApiError ToApiError(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported:
    case ErrorCode::kNotFound:
      return {.message = error.message};
    case ErrorCode::kOutOfMemory:
      return {.message = error.message, .code = "exceeds_memory"};
    case ErrorCode::kOverloaded:
      return {
          .status = 503, .type = "server_error", .message = error.message, .code = "overloaded"};
    case ErrorCode::kCorrupt:
    case ErrorCode::kNonFinite:
    case ErrorCode::kIo:
      break;
  }
  return {.status = 500, .type = "server_error", .message = error.message};
}

nlohmann::ordered_json ErrorBody(const ApiError& error) {
  const auto or_null = [](const std::optional<std::string>& text) {
    return text ? nlohmann::ordered_json(*text) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json fields = {{"message", error.message},
                                   {"type", error.type},
                                   {"param", or_null(error.param)},
                                   {"code", or_null(error.code)}};
  if (error.context_size) {
    fields["n_prompt_tokens"] = error.context_size->prompt_tokens;
    fields["n_ctx"] = error.context_size->context;
  }
  return {{"error", std::move(fields)}};
}

}  // namespace kvern::server
