#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/api/openai.h"
#include "server/api/openai_parts.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

double MeanLogprob(const Completion& completion) {
  if (completion.tokens.empty()) return 0;
  double sum = 0;
  for (const SampledToken& token : completion.tokens) sum += double{token.logprob};
  return sum / static_cast<double>(completion.tokens.size());
}

// Indices of the completions to return: all in their order, or the best ones, best first.
std::vector<size_t> ChooseCompletions(const Answer& answer, size_t count) {
  std::vector<size_t> order(answer.completions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (count == order.size()) return order;
  std::vector<double> means;
  for (const Completion& completion : answer.completions) means.push_back(MeanLogprob(completion));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return means[a] > means[b]; });
  order.resize(count);
  return order;
}

Json Choice(const ApiRequest& request, const ModelText& text, size_t index,
            const Completion& completion) {
  Json choice;
  Json logprobs;
  if (request.endpoint == Endpoint::kChatCompletions) {
    choice["index"] = index;
    choice["message"] = {{"role", "assistant"}, {"content", completion.text}, {"refusal", nullptr}};
    if (request.has_logprobs) logprobs = ChatLogprobs(text, completion.tokens);
  } else {
    choice["text"] = completion.text;
    choice["index"] = index;
    if (request.has_logprobs) logprobs = CompletionLogprobs(text).Take(completion.tokens);
  }
  choice["logprobs"] = std::move(logprobs);
  if (request.has_token_ids) choice["token_ids"] = TokenIds(completion.tokens);
  choice["finish_reason"] = FinishName(completion.finish);
  return choice;
}

}  // namespace

std::optional<ApiError> AnswerError(const Answer& answer) {
  if (answer.report.error) return ToApiError(*answer.report.error);
  const bool has_failed =
      std::any_of(answer.completions.begin(), answer.completions.end(),
                  [](const Completion& c) { return c.finish == FinishReason::kFailed; });
  if (!has_failed) return std::nullopt;
  return ApiError{.status = 500, .type = "server_error", .message = "a completion failed"};
}

Json ResponseBody(const ApiRequest& request, const Answer& answer, const ModelInfo& model,
                  const ReplyIds& ids) {
  CHECK(answer.completions.size() >= request.num_choices);
  const bool is_chat = request.endpoint == Endpoint::kChatCompletions;
  Json choices = Json::array();
  for (const size_t i : ChooseCompletions(answer, request.num_choices)) {
    choices.push_back(Choice(request, *model.text, choices.size(), answer.completions[i]));
  }
  Json body = Envelope(request, model, ids, is_chat ? "chat.completion" : "text_completion");
  body["choices"] = std::move(choices);
  body["usage"] = UsageOf(answer.report);
  AddReceipt(answer.report, body);
  return body;
}

}  // namespace kvern::server
