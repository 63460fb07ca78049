#include "cli/reply_writer.h"

#include <chrono>
#include <utility>

#include "text/detokenizer.h"

namespace kvern::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

FinishReason ToFinishReason(engine::FinishReason reason) {
  if (reason == engine::FinishReason::kNone) return FinishReason::kCancelled;
  return reason == engine::FinishReason::kStop ? FinishReason::kStop : FinishReason::kLength;
}

}  // namespace

ReplyWriter::ReplyWriter(engine::OpenedModel* model, engine::GenerationOptions options)
    : model_(*model), generation_(&model->executor(), std::move(options)) {}

Result<WrittenReply> ReplyWriter::Write(engine::GenerationRequest request, const TextSink& on_text,
                                        const std::atomic<bool>& stop) {
  KVERN_RETURN_IF_ERROR(generation_.Start(std::move(request)));
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
  Clock::time_point start = Clock::now();
  while (generation_.finish_reason() == engine::FinishReason::kNone && !stop) {
    KVERN_ASSIGN_OR_RETURN(auto token, generation_.Step());
    if (!token) continue;
    const double seconds = SecondsSince(start);
    (written.step_seconds.empty() ? stats.prefill_seconds : stats.decode_seconds) += seconds;
    written.step_seconds.push_back(seconds);
    if (generation_.finish_reason() != engine::FinishReason::kStop) {
      emit(detokenizer.Push(token->id));
      written.tokens.push_back(std::move(*token));
    }
    start = Clock::now();
  }
  emit(detokenizer.Flush());
  stats.reply_tokens = written.tokens.size();
  // A strategy that keeps nothing between steps still held a whole history in the last one.
  const kv::CacheUsage usage = generation_.cache_usage();
  stats.kv_bytes = usage.bytes_allocated > 0 ? usage.bytes_allocated : usage.peak_bytes;
  written.reply.finish = ToFinishReason(generation_.finish_reason());
  return written;
}

}  // namespace kvern::cli
