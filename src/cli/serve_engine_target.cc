#include "cli/serve_engine_target.h"

#include <utility>

#include "cli/progress.h"

namespace kvern::cli {
namespace {

constexpr std::chrono::milliseconds kEngineStatsPeriod(20);

class EngineAnswer final : public PendingAnswer {
 public:
  explicit EngineAnswer(Result<Reply> reply) : reply_(std::move(reply)) {}

  void Cancel() override {
    if (reply_.ok()) reply_->Cancel();
  }

  AnswerEnd Wait() override {
    if (!reply_.ok()) return {.outcome = Outcome::kRefused, .error = reply_.error()};
    const Result<Answer> answer = reply_->Wait();
    const Report report = reply_->report();
    AnswerEnd end{.cached_tokens = report.prompt.hit(),
                  .queue_us = report.queue_us,
                  .blocks_peak = report.blocks_peak};
    if (!answer.ok() || report.error) {
      end.outcome = Outcome::kFailed;
      end.error = answer.ok() ? *report.error : answer.error();
    } else if (answer->completions.front().finish == FinishReason::kCancelled) {
      end.outcome = Outcome::kEnded;
    }
    return end;
  }

 private:
  Result<Reply> reply_;
};

class EngineTarget final : public ServeTarget {
 public:
  explicit EngineTarget(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  std::unique_ptr<PendingAnswer> Ask(
      AskedRequest asked, std::function<void(const AnswerPiece& piece)> on_piece) override {
    Request request;
    request.tokens = std::move(asked.prompt);
    request.sampling.temperature = 0;
    request.seed = 0;
    request.max_tokens = asked.new_tokens;
    request.ignore_end = true;
    request.cache.use = asked.use_cache;
    request.cache.publish = asked.use_cache;
    request.on_chunk = [on_piece = std::move(on_piece)](const Chunk& chunk) {
      if (on_piece && !chunk.tokens.empty()) on_piece({chunk.tokens.size(), chunk.tokens});
    };
    return std::make_unique<EngineAnswer>(engine_->Submit(std::move(request)));
  }

  Result<std::vector<TokenId>> Encode(std::string_view text, bool add_special) override {
    return engine_->Encode(text, add_special);
  }

  EngineView view() const override { return EngineView::kAll; }
  Result<EngineStats> Stats() override { return engine_->stats(); }
  std::chrono::milliseconds stats_period() const override { return kEngineStatsPeriod; }
  std::string description() const override { return ""; }

 private:
  const std::unique_ptr<Engine> engine_;
};

}  // namespace

Result<std::unique_ptr<ServeTarget>> OpenEngineTarget(const EngineOptions& options) {
  Progress progress("Loading model");
  progress.Update(0);
  KVERN_ASSIGN_OR_RETURN(auto engine, Engine::Open(options));
  return std::unique_ptr<ServeTarget>(std::make_unique<EngineTarget>(std::move(engine)));
}

}  // namespace kvern::cli
