#include "server/api/openai_parts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/api/cache_marks.h"
#include "server/api/json_body.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kFingerprintDigits = 12;
constexpr double kLeastLogprob = -9999;  // what OpenAI says of what cannot be

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
      {"token", ToText(bytes).first}, {"logprob", LogprobOf(logprob)}, {"bytes", std::move(codes)}};
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

}  // namespace

const char* FinishName(FinishReason finish) {
  return finish == FinishReason::kStop ? "stop" : "length";
}

std::optional<std::string> FindStop(const ApiRequest& request, const ModelText& text,
                                    const Completion& completion) {
  if (completion.finish != FinishReason::kStop || request.request.stop.empty()) return std::nullopt;
  std::string said;
  for (const SampledToken& token : completion.tokens) said += text.TokenBytes(token.id);
  for (const std::string& stop : request.request.stop) {
    // A space in front of the first token is in the one and not in the other.
    if (said.find(completion.text + stop) != said.npos) return stop;
  }
  return std::nullopt;
}

std::string SystemFingerprint(const ModelInfo& model) {
  // Clients of llama.cpp expect the b of its builds.
  return "b-kvern-" + model.fingerprint.substr(0, kFingerprintDigits);
}

Json Envelope(const ApiRequest& request, const ModelInfo& model, const ReplyIds& ids,
              std::string_view object) {
  const bool is_chat = request.endpoint == Endpoint::kChatCompletions;
  return {{"id", (is_chat ? "chatcmpl-" : "cmpl-") + ids.id},
          {"object", object},
          {"created", ids.created},
          {"model", request.model},
          {"system_fingerprint", SystemFingerprint(model)}};
}

double LogprobOf(float logprob) {
  return std::isnan(logprob) ? kLeastLogprob : std::max(double{logprob}, kLeastLogprob);
}

kv::MissReason ToldReason(kv::MissReason reason) {
  return reason == kv::MissReason::kOtherNamespace ? kv::MissReason::kNeverSeen : reason;
}

Json MissedByReason(const kv::PromptSplit& prompt) {
  std::array<size_t, kv::kNumMissReasons> told{};
  for (size_t i = 0; i < told.size(); ++i) {
    told[static_cast<size_t>(ToldReason(static_cast<kv::MissReason>(i)))] += prompt.miss[i];
  }
  Json body = Json::object();
  for (size_t i = 0; i < told.size(); ++i) {
    if (told[i] > 0) body[std::string(ToString(static_cast<kv::MissReason>(i)))] = told[i];
  }
  return body;
}

Json PromptDetails(const Report& report) {
  return {{"cached_tokens", report.prompt.hit()},
          {"cache_write_tokens", CreatedTokens(report)},
          {"kvern_missed", MissedByReason(report.prompt)}};
}

Json UsageOf(const Report& report) {
  return {{"prompt_tokens", report.prompt_tokens},
          {"completion_tokens", report.completion_tokens},
          {"total_tokens", report.prompt_tokens + report.completion_tokens},
          {"prompt_tokens_details", PromptDetails(report)}};
}

void AddReceipt(const Report& report, Json& body) {
  if (auto receipt = ParseJson(report.receipt); receipt.ok()) {
    body["kvern_receipt"] = std::move(receipt).value();
  }
}

Json TokenIds(std::span<const SampledToken> tokens) {
  Json ids = Json::array();
  for (const SampledToken& token : tokens) ids.push_back(static_cast<uint32_t>(token.id));
  return ids;
}

Json ChatLogprobs(const ModelText& text, std::span<const SampledToken> tokens) {
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

Json CompletionLogprobs::Take(std::span<const SampledToken> tokens) {
  Json names = Json::array(), logprobs = Json::array(), tops = Json::array();
  Json offsets = Json::array();
  for (const SampledToken& token : tokens) {
    const std::string bytes = text_->TokenBytes(token.id);
    names.push_back(TokenName(bytes));
    logprobs.push_back(LogprobOf(token.logprob));
    offsets.push_back(offset_);
    offset_ += CountCharacters(stream_.Push(bytes));
    Json top = Json::object();
    for (const TokenLogprob& other : token.top) {
      top[TokenName(text_->TokenBytes(other.id))] = LogprobOf(other.logprob);
    }
    // OpenAI lists the chosen token too, though it be none of the best.
    if (!token.top.empty()) top[TokenName(bytes)] = LogprobOf(token.logprob);
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

}  // namespace kvern::server
