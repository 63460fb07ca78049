// ReplyWriter: runs one reply of a generation, streams its text and measures it.
//
// Keeps the K/V of the conversation between replies. One thread.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/chat.h"
#include "engine/exec/open.h"
#include "engine/generation.h"

namespace kvern::cli {

struct WrittenReply {
  ChatReply reply;
  std::vector<SampledToken> tokens;  // without the end token
  std::vector<double> step_seconds;  // of each step that gave a token
};

class ReplyWriter {
 public:
  // All must outlive the writer.
  ReplyWriter(engine::OpenedModel* model, engine::GenerationOptions options);

  // Writes the reply to `request` to `on_text` as it comes, until it ends or *stop is true.
  Result<WrittenReply> Write(engine::GenerationRequest request, const TextSink& on_text,
                             const std::atomic<bool>& stop);

  const engine::Generation& generation() const { return generation_; }

 private:
  engine::OpenedModel& model_;
  engine::Generation generation_;
};

}  // namespace kvern::cli
