// Any bytes as the body of a request to each endpoint that generates: it is refused with one line
// that a client can read, or it becomes a request whose reply, whole or as a stream, is valid JSON.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/api/answer_format.h"
#include "server/api/anthropic.h"
#include "server/api/api_test_util.h"
#include "server/api/json_body.h"
#include "server/api/llama.h"
#include "server/api/openai.h"
#include "server/api/responses.h"

using namespace kvern;
using namespace kvern::server;

namespace {

using Json = nlohmann::ordered_json;
using Parsed = std::variant<ApiRequest, ApiError>;

constexpr size_t kContext = 4096;
constexpr std::string_view kData = "data: ";

// Lines of data are JSON or the end; others are names, comments or empty.
void CheckEvents(std::string_view text) {
  CHECK(text.empty() || text.ends_with("\n\n"));
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + 1);
    if (!line.starts_with(kData)) continue;
    const std::string_view data = line.substr(kData.size());
    CHECK(data == "[DONE]" || ParseJson(data).ok());
  }
}

void CheckStream(AnswerFormat& format, const Answer& answer) {
  CheckEvents(format.Begin());
  for (uint32_t i = 0; i < answer.completions.size(); ++i) {
    CheckEvents(format.Take({.completion = i,
                             .tokens = answer.completions[i].tokens,
                             .text = answer.completions[i].text,
                             .finish = FinishReason::kStop}));
  }
  CheckEvents(format.Ping());
  CheckEvents(format.End(answer.report));
}

template <typename MakeFormat>
void Try(const Parsed& parsed, MakeFormat make_format) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    CHECK(error->status == 400 || error->code == "not_offered");
    CHECK(!error->message.empty());
    CHECK(ParseJson(ToJsonLine(ErrorBody(*error))).ok());
    return;
  }
  const auto& request = std::get<ApiRequest>(parsed);
  CHECK(!request.request.tokens.empty() && request.request.tokens.size() < kContext);
  CHECK(request.num_choices >= 1 && request.num_choices <= request.request.n);
  Answer answer;
  for (size_t i = 0; i < request.request.n; ++i) {
    answer.completions.push_back(Say(TextOf(request.request.tokens).substr(0, 4), -1.0f, i % 2));
  }
  CHECK(ParseJson(make_format(request)->Whole(answer)).ok());
  // A stream of fewer choices than completions is refused before.
  if (request.request.n == request.num_choices) CheckStream(*make_format(request), answer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const LetterText text;
  static const ModelInfo model = {.text = &text, .context = kContext, .fingerprint = "0123"};
  const auto body = ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok()) return 0;
  const ReplyIds ids = {.id = "1", .created = 2};
  const auto openai = [&](const ApiRequest& request) {
    return MakeOpenAiFormat(request, model, ids);
  };
  Try(ParseRequest(Endpoint::kChatCompletions, *body, model), openai);
  Try(ParseRequest(Endpoint::kCompletions, *body, model), openai);
  if (!body->is_object()) return 0;  // the others are given objects
  Try(ParseMessagesRequest(*body, model), [&](const ApiRequest& request) {
    return MakeAnthropicFormat(request, model, ids, request.request.tokens.size());
  });
  Try(ParseResponsesRequest(*body, model),
      [&](const ApiRequest& request) { return MakeResponsesFormat(request, ids); });
  Try(ParseLlamaRequest(*body, model), [&](const ApiRequest& request) {
    return MakeLlamaFormat(request, model, request.request.tokens.size());
  });
  return 0;
}
