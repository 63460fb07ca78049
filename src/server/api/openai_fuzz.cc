// Any bytes as the body of a request: it is refused with one line that a client can read, or it
// becomes a request whose reply is valid JSON.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/api/api_test_util.h"
#include "server/api/json_body.h"
#include "server/api/openai.h"

using namespace kvern;
using namespace kvern::server;

namespace {

constexpr size_t kContext = 4096;

void TryEndpoint(Endpoint endpoint, const nlohmann::ordered_json& body) {
  static const LetterText text;
  const ModelInfo model = {.text = &text, .context = kContext, .fingerprint = "0123"};
  const auto result = ParseRequest(endpoint, body, model);
  if (const auto* error = std::get_if<ApiError>(&result)) {
    CHECK(error->status == 400 && !error->message.empty());
    CHECK(ParseJson(ToJsonLine(ErrorBody(*error))).ok());
    return;
  }
  const auto& request = std::get<ApiRequest>(result);
  CHECK(!request.request.tokens.empty() && request.request.tokens.size() < kContext);
  CHECK(request.num_choices >= 1 && request.num_choices <= request.request.n);
  Answer answer;
  for (size_t i = 0; i < request.request.n; ++i) {
    answer.completions.push_back(Say(TextOf(request.request.tokens).substr(0, 4), -1.0f, i % 2));
  }
  const auto reply = ResponseBody(request, answer, model, {.id = "1", .created = 2});
  CHECK(ParseJson(ToJsonLine(reply)).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto body = ParseJson(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!body.ok()) return 0;
  TryEndpoint(Endpoint::kChatCompletions, *body);
  TryEndpoint(Endpoint::kCompletions, *body);
  return 0;
}
