// Client: who sent one request, and knows its right answer. Checks every chunk as it comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "engine/core.h"
#include "engine/model_check/fake_clock.h"
#include "engine/model_check/fake_model.h"

namespace kvern::engine::model_check {

// How a client reads.
struct Reading {
  size_t room = SIZE_MAX;                // chunks that it holds until it reads
  std::optional<size_t> throws_at = {};  // the number of the chunk that it cannot bear
};

class Client final : public ReplySink {
 public:
  Client(Request request, const EndRules* rules, const FakeModel* model, const FakeClock* clock,
         Reading reading);

  bool HasRoom() const override { return num_queued_ < reading_.room; }
  void Take(const Chunk& chunk) override;
  void Finish(Report report) override;

  // Reads what has come.
  void Read() { num_queued_ = 0; }
  void ReadAtOnce() { reading_.room = SIZE_MAX; }

  const Request& request() const { return request_; }
  bool is_finished() const { return report_.has_value(); }
  const Report& report() const { return *report_; }
  bool has_thrown() const { return has_thrown_; }
  bool has_finish(FinishReason finish) const;
  size_t num_tokens() const;
  // Prompt and answer of a completion, as far as it came.
  std::vector<TokenId> Conversation(size_t completion) const;
  // Hash of all that came, times included.
  uint64_t trace() const { return trace_; }

  RequestId id{};
  int64_t arrival_us = 0;
  uint64_t num_steps_live = 0;
  bool is_cancelled = false;
  bool is_stranger = false;  // nobody shares its texts
  size_t least_room = 0;     // tokens that its tenant could have, since it came

 private:
  struct Progress {
    NaiveAnswer answer;
    std::optional<FinishReason> finish = {};
  };

  void CheckToken(const SampledToken& token, Progress& progress) const;
  void CheckFinish(FinishReason finish, Progress& progress) const;
  void CheckReport(const Report& report) const;
  void CheckPromptSplit(const Report& report) const;
  void CheckEvents(const Report& report) const;
  void Add(uint64_t number);

  const Request request_;
  const FakeClock& clock_;
  Reading reading_;
  std::vector<Progress> completions_;
  size_t num_queued_ = 0;
  size_t num_taken_ = 0;
  bool has_thrown_ = false;
  std::optional<Report> report_;
  uint64_t trace_ = 0;
};

}  // namespace kvern::engine::model_check
