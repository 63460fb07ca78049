// AnswerFormat: how a protocol says an answer, whole or as it comes.
#pragma once

#include <memory>
#include <string>

#include "server/api/openai.h"

namespace kvern::server {

// One thread at a time. Texts of a stream are server-sent events; empty: nothing to say yet.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The body of a whole reply. REQUIRES: !AnswerError(answer).
  virtual std::string Whole(const Answer& answer) = 0;

  virtual std::string Begin() = 0;
  // How the request fares, where it asked to be told (LlamaFields): before Take(), and while its
  // prompt is computed.
  virtual std::string See(const Report&) { return ""; }
  virtual std::string Take(const Chunk& chunk) = 0;
  virtual std::string Ping() = 0;
  virtual std::string End(const Report& report) = 0;
};

// `model` must outlive them. Of `request.request` they read n and the stops alone.
std::unique_ptr<AnswerFormat> MakeOpenAiFormat(ApiRequest request, const ModelInfo& model,
                                               ReplyIds ids);
std::unique_ptr<AnswerFormat> MakeAnthropicFormat(ApiRequest request, const ModelInfo& model,
                                                  ReplyIds ids, size_t prompt_tokens);
std::unique_ptr<AnswerFormat> MakeResponsesFormat(ApiRequest request, ReplyIds ids);
std::unique_ptr<AnswerFormat> MakeLlamaFormat(ApiRequest request, const ModelInfo& model,
                                              size_t prompt_tokens);

}  // namespace kvern::server
