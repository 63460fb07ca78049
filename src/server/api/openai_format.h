// Answers in OpenAI's form: a JSON object, or server-sent events.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/api/answer_format.h"
#include "server/api/llama_parts.h"
#include "server/api/openai_parts.h"

namespace kvern::server {

// One event. Data is one line.
std::string FormatEvent(std::string_view data);
// A comment, which keeps proxies and clients from giving up.
inline constexpr std::string_view kPingComment = ": ping\n\n";

class OpenAiFormat final : public AnswerFormat {
 public:
  OpenAiFormat(ApiRequest request, const ModelInfo& model, ReplyIds ids);

  std::string Whole(const Answer& answer) override;
  std::string Begin() override;
  std::string See(const Report& report) override;
  // The last finish is kept for End(), which knows the times.
  std::string Take(const Chunk& chunk) override;
  std::string Ping() override;  // a comment
  // The usage if it was asked for, with the receipt, or what failed; and the end.
  std::string End(const Report& report) override;

 private:
  nlohmann::ordered_json Event() const;
  nlohmann::ordered_json Choice(const Chunk& chunk, const char* finish) const;
  std::string Finish(const Chunk& chunk, const Report* ended) const;
  std::string Last(nlohmann::ordered_json event, const Report& report) const;

  const ApiRequest request_;
  const ModelInfo& model_;
  const ReplyIds ids_;
  std::vector<CompletionLogprobs> logprobs_;  // [n], of completions
  PromptProgress progress_;
  Report seen_;              // the last
  size_t num_finished_ = 0;  // choices
  std::optional<Chunk> last_finish_;
};

}  // namespace kvern::server
