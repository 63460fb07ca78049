#include "cli/reply_writer.h"

#include <chrono>
#include <utility>

#include "text/detokenizer.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;

// How soon a reply that was stopped while it is being computed ends.
constexpr int64_t kStopPollUs = 50'000;

double SecondsSince(Stopwatch::time_point start) {
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

class EngineWriter final : public ReplyWriter {
 public:
  EngineWriter(engine::OpenedModel* model, std::unique_ptr<Engine> engine)
      : model_(*model), engine_(std::move(engine)) {}

  Result<WrittenReply> Write(ReplyRequest request, const TextSink& on_text,
                             const std::atomic<bool>& stop) override {
    KVERN_RETURN_IF_ERROR(CheckContext(request));
    Request submitted;
    submitted.tokens = std::move(request.prompt);
    submitted.seed = request.sampling.seed;
    submitted.sampling = std::move(request.sampling);
    submitted.max_tokens = request.max_new_tokens;
    Stopwatch::time_point start = Stopwatch::now();
    KVERN_ASSIGN_OR_RETURN(Reply reply, engine_->Submit(std::move(submitted)));
    WrittenReply written;
    while (!reply.finished()) {
      if (stop) reply.Cancel();
      std::optional<Chunk> chunk = reply.Next(kStopPollUs);
      if (!chunk) continue;
      if (!chunk->text.empty()) {
        written.reply.text += chunk->text;
        on_text(chunk->text);
      }
      if (chunk->finish) written.reply.finish = *chunk->finish;
      for (SampledToken& token : chunk->tokens) {
        written.step_seconds.push_back(SecondsSince(start));
        written.tokens.push_back(std::move(token));
        start = Stopwatch::now();
      }
    }
    return Finish(std::move(written), reply.report());
  }

 private:
  // The engine would refuse it too, but knows no flags.
  Status CheckContext(const ReplyRequest& request) const {
    const size_t num_prompt = request.prompt.size();
    const size_t context = engine_->context();
    if (num_prompt > context) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "the prompt has {} tokens, but the context is {}: shorten it or raise -c",
                    num_prompt, context);
    }
    if (request.max_new_tokens && num_prompt + *request.max_new_tokens > context) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "{} prompt tokens and -n {} exceed the context of {}: lower -n or raise -c",
                    num_prompt, *request.max_new_tokens, context);
    }
    return {};
  }

  Result<WrittenReply> Finish(WrittenReply written, const Report& report) const {
    if (report.error) return *report.error;
    ReplyStats& stats = written.reply.stats;
    stats.prompt_tokens = report.prompt_tokens;
    stats.cached_tokens = report.prompt.hit();
    stats.reply_tokens = written.tokens.size();
    for (size_t i = 0; i < written.step_seconds.size(); ++i) {
      (i == 0 ? stats.prefill_seconds : stats.decode_seconds) += written.step_seconds[i];
    }
    stats.kv_bytes = report.blocks_peak * model_.layout().block_bytes();
    written.receipt = report.receipt;
    return written;
  }

  engine::OpenedModel& model_;
  const std::unique_ptr<Engine> engine_;
};

class StrategyWriter final : public ReplyWriter {
 public:
  StrategyWriter(engine::OpenedModel* model, engine::GenerationOptions options)
      : model_(*model), generation_(&model->executor(), std::move(options)) {}

  Result<WrittenReply> Write(ReplyRequest request, const TextSink& on_text,
                             const std::atomic<bool>& stop) override {
    KVERN_RETURN_IF_ERROR(generation_.Start({.prompt = std::move(request.prompt),
                                             .sampling = std::move(request.sampling),
                                             .max_new_tokens = request.max_new_tokens}));
    WrittenReply written;
    ReplyStats& stats = written.reply.stats;
    stats.prompt_tokens = generation_.num_prompt_tokens();
    stats.cached_tokens = generation_.num_kept_tokens();
    text::Detokenizer detokenizer(model_.tokenizer());
    const auto emit = [&](const std::string& text) {
      if (text.empty()) return;
      written.reply.text += text;
      on_text(text);
    };
    Stopwatch::time_point start = Stopwatch::now();
    while (!generation_.finish_reason() && !stop) {
      KVERN_ASSIGN_OR_RETURN(auto token, generation_.Step());
      if (!token) continue;
      const double seconds = SecondsSince(start);
      (written.step_seconds.empty() ? stats.prefill_seconds : stats.decode_seconds) += seconds;
      written.step_seconds.push_back(seconds);
      if (generation_.finish_reason() != FinishReason::kStop) {
        emit(detokenizer.Push(token->id));
        written.tokens.push_back(std::move(*token));
      }
      start = Stopwatch::now();
    }
    emit(detokenizer.Flush());
    stats.reply_tokens = written.tokens.size();
    // A strategy that keeps nothing between steps still held a whole history in the last one.
    const kv::CacheUsage usage = generation_.cache_usage();
    stats.kv_bytes = usage.bytes_allocated > 0 ? usage.bytes_allocated : usage.peak_bytes;
    written.reply.finish = generation_.finish_reason().value_or(FinishReason::kCancelled);
    return written;
  }

 private:
  engine::OpenedModel& model_;
  engine::Generation generation_;
};

}  // namespace

Result<std::unique_ptr<ReplyWriter>> MakeEngineWriter(engine::OpenedModel* model) {
  KVERN_ASSIGN_OR_RETURN(auto engine, engine::MakeEngine(model));
  return std::unique_ptr<ReplyWriter>(std::make_unique<EngineWriter>(model, std::move(engine)));
}

std::unique_ptr<ReplyWriter> MakeStrategyWriter(engine::OpenedModel* model,
                                                engine::GenerationOptions options) {
  return std::make_unique<StrategyWriter>(model, std::move(options));
}

}  // namespace kvern::cli
