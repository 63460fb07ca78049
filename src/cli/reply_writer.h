// ReplyWriter: writes one reply after the other, streams its text and measures it.
//
// Two of them: on the engine, whose prefix cache finds what earlier replies computed; and on a
// strategy of kv/strategy.h, which keeps the K/V of one conversation or of none. They write the
// same. One thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/chat.h"
#include "engine/exec/open.h"
#include "engine/generation.h"

namespace kvern::cli {

struct ReplyRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::optional<size_t> max_new_tokens;  // none: up to the context
};

struct WrittenReply {
  ChatReply reply;
  std::vector<SampledToken> tokens;  // without the end token
  std::vector<double> step_seconds;  // of each step that gave a token
  std::string receipt;               // JSON; empty: none (rule G7)
};

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

  // Writes the reply to `request` to `on_text` as it comes, until it ends or *stop is true.
  // Errors: kInvalidArgument where it does not fit the context, with the numbers.
  virtual Result<WrittenReply> Write(ReplyRequest request, const TextSink& on_text,
                                     const std::atomic<bool>& stop) = 0;
};

// The model must outlive the writer.
Result<std::unique_ptr<ReplyWriter>> MakeEngineWriter(engine::OpenedModel* model);
std::unique_ptr<ReplyWriter> MakeStrategyWriter(engine::OpenedModel* model,
                                                engine::GenerationOptions options);

}  // namespace kvern::cli
