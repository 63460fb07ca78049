#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "server/api/json_body.h"
#include "server/api/openai.h"
#include "text/utf8.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFingerprintDigits = 12;
constexpr double kLeastLogprob = -9999;  // what OpenAI says of what cannot be

const char* FinishName(FinishReason finish) {
  return finish == FinishReason::kStop ? "stop" : "length";
}

double Logprob(float logprob) {
  return std::isnan(logprob) ? kLeastLogprob : std::max(double{logprob}, kLeastLogprob);
}

// Valid UTF-8, and whether that is all of `bytes`.
std::pair<std::string, bool> ToText(const std::string& bytes) {
  text::Utf8Stream stream;
  std::string text = stream.Push(bytes);
  text += stream.Flush();
  const bool is_same = text == bytes;
  return {std::move(text), is_same};
}

Json ChatToken(const ModelText& text, TokenId id, float logprob) {
  const std::string bytes = text.TokenBytes(id);
  Json codes = Json::array();
  for (const char c : bytes) codes.push_back(static_cast<unsigned char>(c));
  return {
      {"token", ToText(bytes).first}, {"logprob", Logprob(logprob)}, {"bytes", std::move(codes)}};
}

Json ChatLogprobs(const ModelText& text, const std::vector<SampledToken>& tokens) {
  Json content = Json::array();
  for (const SampledToken& token : tokens) {
    Json entry = ChatToken(text, token.id, token.logprob);
    entry["top_logprobs"] = Json::array();
    for (const TokenLogprob& top : token.top) {
      entry["top_logprobs"].push_back(ChatToken(text, top.id, top.logprob));
    }
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

// A name for a token: its text, or its bytes where they are no text by themselves.
std::string TokenName(const std::string& bytes) {
  auto [text, is_same] = ToText(bytes);
  if (is_same) return std::move(text);
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

size_t CountCharacters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

Json CompletionLogprobs(const ModelText& text, const std::vector<SampledToken>& tokens) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json offsets = Json::array();
  text::Utf8Stream stream;
  size_t offset = 0;
  for (const SampledToken& token : tokens) {
    const std::string bytes = text.TokenBytes(token.id);
    names.push_back(TokenName(bytes));
    logprobs.push_back(Logprob(token.logprob));
    offsets.push_back(offset);
    offset += CountCharacters(stream.Push(bytes));
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      top[TokenName(text.TokenBytes(other.id))] = Logprob(other.logprob);
    }
    // OpenAI lists the chosen token too, though it be none of the best.
    if (!token.top.empty()) top[TokenName(bytes)] = Logprob(token.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

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
    if (request.has_logprobs) logprobs = CompletionLogprobs(text, completion.tokens);
  }
  choice["logprobs"] = std::move(logprobs);
  choice["finish_reason"] = FinishName(completion.finish);
  return choice;
}

Json Usage(const Report& report) {
  return {{"prompt_tokens", report.prompt_tokens},
          {"completion_tokens", report.completion_tokens},
          {"total_tokens", report.prompt_tokens + report.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", report.prompt.hit()}}}};
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
  Json body = {{"id", (is_chat ? "chatcmpl-" : "cmpl-") + ids.id},
               {"object", is_chat ? "chat.completion" : "text_completion"},
               {"created", ids.created},
               {"model", request.model},
               {"choices", std::move(choices)},
               {"usage", Usage(answer.report)},
               {"system_fingerprint", "kvern-" + model.fingerprint.substr(0, kFingerprintDigits)}};
  if (auto receipt = ParseJson(answer.report.receipt); receipt.ok()) {
    body["kvern_receipt"] = std::move(receipt).value();
  }
  return body;
}

}  // namespace kvern::server
