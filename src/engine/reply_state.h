// ReplyState: one request's answer between the engine's thread, which fills it, and its reader.
//
// The sink's functions and those from SetCoreId() to Complete() are for the engine's thread; the
// others for any, Next() for one reader at a time. It outlives the engine as long as somebody holds
// it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/core.h"
#include "engine/mailbox.h"
#include "engine/receipt.h"
#include "kvern/engine.h"

namespace kvern::engine {

class ReplyState;

// What all replies of an engine share.
struct ReplyHome {
  Mailbox mailbox;
  ReceiptModel model;
  size_t context = 0;
  std::vector<std::shared_ptr<ReplyState>> finished;  // the engine's thread: those to Complete()
};

class ReplyState : public ReplySink, public std::enable_shared_from_this<ReplyState> {
 public:
  // `request` as it is submitted: with tokens and seed. `id` is for people; the core has its own.
  ReplyState(std::shared_ptr<ReplyHome> home, const Request& request, uint64_t id);
  ~ReplyState() override;

  bool HasRoom() const override;
  void Take(const Chunk& chunk) override;
  void Finish(Report report) override;

  void SetCoreId(RequestId id) { core_id_ = id; }
  std::optional<RequestId> core_id() const { return core_id_; }  // none: refused
  void SetReport(Report report);
  // The end of a request that the core has not taken.
  void Refuse(Error error);
  // Lets the reader see the end, after Finish().
  void Complete();

  // Waits for a chunk, no longer than this.
  std::optional<Chunk> Next(std::optional<int64_t> timeout_us);
  bool IsReadToTheEnd() const;
  void Cancel();
  // The reader is gone: chunks go nowhere, nothing is called any more.
  void Abandon();
  uint64_t id() const { return id_; }
  // Of a live request, as of a moment ago: a step that is under way is not waited for.
  Report GetReport();
  size_t num_completions() const { return request_.n; }
  // Of a completion that has not ended: kFailed.
  kvern::FinishReason FinishOf(size_t completion) const;

 private:
  void Wake();
  void AskForReport();

  const std::shared_ptr<ReplyHome> home_;
  const Request request_;  // without text
  const uint64_t id_;
  const size_t max_queued_;
  std::optional<RequestId> core_id_;    // the engine's thread
  AnswerHasher hasher_;                 // the engine's thread; the reader's once is_complete_
  std::optional<Report> final_report_;  // the engine's thread

  // Held while on_chunk or on_end runs, so that nobody destroys what it uses meanwhile; the
  // callback itself may abandon its reply.
  std::recursive_mutex callback_mutex_;
  bool is_callback_over_ = false;  // on_chunk threw, or …
  bool is_reader_gone_ = false;    // … its reader is gone

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> queue_;
  mutable bool wants_wake_ = false;  // HasRoom() said no
  bool is_abandoned_ = false;
  bool is_complete_ = false;
  Report report_;
  uint64_t num_reports_ = 0;
  std::vector<kvern::FinishReason> finishes_;  // [n]
};

}  // namespace kvern::engine
