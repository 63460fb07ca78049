#include "cli/serve_url_target.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/serve_scrape.h"
#include "cli/serve_stream.h"
#include "server/api/json_body.h"
#include "server/http/event_reader.h"
#include "server/http/http_client.h"
#include "server/http/reply_format.h"

namespace kvern::cli {
namespace {

using server::ClientRequest;
using server::HttpClient;
using server::HttpHeader;
using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kScrapePeriod(200);
constexpr size_t kMaxErrorBody = 4096;
constexpr int kOk = 200, kUnauthorized = 401, kForbidden = 403, kNotFound = 404;
constexpr int kTooManyRequests = 429, kUnavailable = 503;

// "401 Unauthorized: Invalid API Key: give --api-key".
std::string Describe(int status, std::string_view body) {
  std::string text = fmt::format("{} {}", status, server::StatusPhrase(status));
  const std::string message = ErrorMessage(body);
  if (!message.empty()) text += ": " + message;
  if (status == kUnauthorized || status == kForbidden) text += ": give another --api-key";
  return text;
}

// A reply as it comes. The client's thread until it has ended; then whoever waits.
class UrlAnswer final : public std::enable_shared_from_this<UrlAnswer> {
 public:
  explicit UrlAnswer(std::function<void(const AnswerPiece& piece)> on_piece)
      : on_piece_(std::move(on_piece)) {}

  server::ReplyCallbacks Callbacks() {
    const auto self = shared_from_this();
    return {.on_head = [self](const server::ReplyHead& head) { self->status_ = head.status; },
            .on_body = [self](std::string_view bytes) { self->Take(bytes); },
            .on_end = [self](Status status) { self->ended_.set_value(std::move(status)); }};
  }

  // Once. After it this is the caller's.
  Status Wait() { return ended_.get_future().get(); }

  int status() const { return status_; }  // 0: no reply has come
  const std::string& error_body() const { return error_body_; }
  const CompletionStream& stream() const { return stream_; }
  bool is_broken() const { return is_broken_; }  // an event was too long
  bool has_ids() const { return has_ids_; }

 private:
  void Take(std::string_view bytes) {
    if (status_ != kOk) {
      error_body_ += bytes.substr(0, kMaxErrorBody - error_body_.size());
      return;
    }
    is_broken_ = !events_.Feed(bytes, [this](std::string_view data) { TakeEvent(data); });
  }

  void TakeEvent(std::string_view data) {
    const auto piece = stream_.Take(data);
    if (!piece) return;
    has_ids_ = has_ids_ || !piece->ids.empty();
    if (!on_piece_) return;
    std::vector<SampledToken> tokens;
    for (const TokenId id : piece->ids) tokens.push_back({.id = id, .logprob = 0, .top = {}});
    on_piece_({piece->num_tokens, tokens});
  }

  const std::function<void(const AnswerPiece& piece)> on_piece_;
  server::EventReader events_;
  CompletionStream stream_;
  int status_ = 0;
  std::string error_body_;
  bool is_broken_ = false;
  bool has_ids_ = false;
  std::promise<Status> ended_;
};

class UrlTarget final : public ServeTarget {
 public:
  UrlTarget(const UrlTargetOptions& options, std::unique_ptr<HttpClient> client)
      : tokenizer_(options.tokenizer), client_(std::move(client)) {
    if (!options.api_key.empty()) {
      headers_.push_back({"Authorization", "Bearer " + options.api_key});
    }
  }

  // Errors: nobody listens, or it is no such server.
  Status Open();

  std::unique_ptr<PendingAnswer> Ask(
      AskedRequest asked, std::function<void(const AnswerPiece& piece)> on_piece) override;
  Result<std::vector<TokenId>> Encode(std::string_view text, bool add_special) override;
  EngineView view() const override { return view_; }
  Result<EngineStats> Stats() override;
  std::chrono::milliseconds stats_period() const override { return kScrapePeriod; }
  std::string description() const override {
    return model_.empty() ? client_->url().ToString() : client_->url().ToString() + ", " + model_;
  }

 private:
  class Pending;

  Result<std::string> Fetch(ClientRequest request);
  ClientRequest Post(std::string target, const Json& body) const;

  const std::shared_ptr<text::Tokenizer> tokenizer_;
  std::vector<HttpHeader> headers_;
  std::string model_;
  EngineView view_ = EngineView::kNothing;
  std::mutex mutex_;
  kv::StateCounts peak_bytes_;                // of all looks so far
  const std::unique_ptr<HttpClient> client_;  // last: its thread ends before the rest goes
};

class UrlTarget::Pending final : public PendingAnswer {
 public:
  Pending(UrlTarget& target, std::shared_ptr<UrlAnswer> answer, uint64_t id, bool needs_tokens)
      : target_(target), answer_(std::move(answer)), id_(id), needs_tokens_(needs_tokens) {}

  void Cancel() override {
    is_cancelled_ = true;
    target_.client_->Cancel(id_);
  }

  AnswerEnd Wait() override {
    const Status status = answer_->Wait();
    const CompletionStream& stream = answer_->stream();
    AnswerEnd end{.num_tokens = stream.completion_tokens(),
                  .cached_tokens = stream.cached_tokens()};
    const auto fail = [&end](std::string_view kind, std::string message) {
      end.outcome = Outcome::kFailed;
      end.failed_by = kind;
      end.error = Error{ErrorCode::kIo, std::move(message)};
    };
    if (answer_->status() != 0 && answer_->status() != kOk) {
      const int code = answer_->status();
      fail(std::to_string(code), Describe(code, answer_->error_body()));
      if (code == kTooManyRequests || code == kUnavailable) end.outcome = Outcome::kRefused;
    } else if (stream.error()) {
      fail("in the stream", *stream.error());
    } else if (answer_->is_broken()) {
      fail("in the stream", "an event is too long");
    } else if (!status.ok() && is_cancelled_) {
      end.outcome = Outcome::kEnded;
    } else if (!status.ok()) {
      fail("connection", status.error().message);
    } else if (!stream.has_ended()) {
      fail("in the stream", "it has no end: neither a finish_reason nor [DONE]");
    } else if (needs_tokens_ && !answer_->has_ids()) {
      auto tokens = target_.Encode(stream.text(), /*add_special=*/false);
      if (!tokens.ok()) fail("tokenize", tokens.error().message);
      for (const TokenId id : tokens.ok() ? *tokens : std::vector<TokenId>()) {
        end.tokens.push_back({.id = id, .logprob = 0, .top = {}});
      }
    }
    return end;
  }

 private:
  UrlTarget& target_;
  const std::shared_ptr<UrlAnswer> answer_;
  const uint64_t id_;
  const bool needs_tokens_;
  std::atomic<bool> is_cancelled_{false};
};

Status UrlTarget::Open() {
  KVERN_ASSIGN_OR_RETURN(const std::string models, Fetch({.target = "/v1/models"}));
  model_ = ParseModelName(models).value_or("");
  if (Stats().ok()) view_ = EngineView::kMetrics;
  return {};
}

ClientRequest UrlTarget::Post(std::string target, const Json& body) const {
  return {.method = "POST",
          .target = std::move(target),
          .headers = {{"Content-Type", "application/json"}},
          .body = server::ToJsonLine(body)};
}

// The body of a reply that must be good.
Result<std::string> UrlTarget::Fetch(ClientRequest request) {
  const std::string name = client_->url().ToString() + request.target;
  request.headers.insert(request.headers.end(), headers_.begin(), headers_.end());
  KVERN_ASSIGN_OR_RETURN(server::WholeReply reply, client_->Ask(request));
  if (reply.status == kOk) return std::move(reply.body);
  return Errorf(reply.status == kNotFound ? ErrorCode::kNotFound : ErrorCode::kIo, "{}: {}", name,
                Describe(reply.status, reply.body));
}

std::unique_ptr<PendingAnswer> UrlTarget::Ask(
    AskedRequest asked, std::function<void(const AnswerPiece& piece)> on_piece) {
  Json prompt = Json::array();
  for (const TokenId id : asked.prompt) prompt.push_back(static_cast<uint32_t>(id));
  Json body = {{"prompt", std::move(prompt)},
               {"max_tokens", asked.new_tokens},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"return_token_ids", true}};
  if (!model_.empty()) body["model"] = model_;
  if (!asked.use_cache) body["cache_prompt"] = false;
  ClientRequest request = Post("/v1/completions", body);
  request.headers.insert(request.headers.end(), headers_.begin(), headers_.end());
  const auto answer = std::make_shared<UrlAnswer>(std::move(on_piece));
  const uint64_t id = client_->Start(request, answer->Callbacks());
  return std::make_unique<Pending>(*this, answer, id, asked.needs_tokens);
}

Result<std::vector<TokenId>> UrlTarget::Encode(std::string_view text, bool add_special) {
  if (tokenizer_) return tokenizer_->Encode(text, {.add_special = add_special});
  const std::string target = "/tokenize";
  const auto reply = Fetch(Post(target, {{"content", text}, {"add_special", add_special}}));
  if (!reply.ok() && reply.error().code == ErrorCode::kNotFound) {
    return Errorf(ErrorCode::kNotFound, "{}: give the model's file by -m, for its tokenizer",
                  reply.error().message);
  }
  if (!reply.ok()) return reply.error();
  auto tokens = ParseTokens(*reply);
  if (tokens && !tokens->empty()) return *std::move(tokens);
  return Errorf(ErrorCode::kCorrupt,
                "{}{}: the reply has no tokens: give the model's file by -m, for its tokenizer",
                client_->url().ToString(), target);
}

Result<EngineStats> UrlTarget::Stats() {
  KVERN_ASSIGN_OR_RETURN(const std::string text, Fetch({.target = "/metrics"}));
  std::optional<EngineStats> stats = ParseMetrics(text);
  if (!stats) {
    return Errorf(ErrorCode::kUnsupported, "{}/metrics: has no metrics of Kvern",
                  client_->url().ToString());
  }
  const std::lock_guard lock(mutex_);
  for (size_t kv::StateCounts::*const state :
       {&kv::StateCounts::active, &kv::StateCounts::cached, &kv::StateCounts::reserved,
        &kv::StateCounts::free}) {
    peak_bytes_.*state = std::max(peak_bytes_.*state, stats->kv.bytes.*state);
  }
  stats->kv.peak_bytes = peak_bytes_;
  return *stats;
}

}  // namespace

Result<std::unique_ptr<ServeTarget>> OpenUrlTarget(const UrlTargetOptions& options) {
  KVERN_ASSIGN_OR_RETURN(const server::HttpUrl url, server::ParseHttpUrl(options.url));
  KVERN_ASSIGN_OR_RETURN(auto client, HttpClient::Open(url, {}));
  auto target = std::make_unique<UrlTarget>(options, std::move(client));
  KVERN_RETURN_IF_ERROR(target->Open());
  return std::unique_ptr<ServeTarget>(std::move(target));
}

}  // namespace kvern::cli
