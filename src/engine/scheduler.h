// Scheduler: decides each step: who computes how many tokens, who waits, who yields.
//
//   - Decode first, then prefill in chunks within the step's tokens (G1); so many as leave the time
//     between tokens below target_token_us, where that is given. Where that is too few to compute
//     them well, one chunk takes several steps, in each as many layers as there is time for.
//   - A sequence is admitted when the blocks that it and those admitted before it still lack are
//     there, its own hit pinned (G3). Who finds its prefix being computed waits for it (K6).
//   - Who lacks its account's share waits for its own account alone, and nobody waits behind it.
//   - Every block of a step is promised before anything is computed (G2). Where there is none, the
//     last in rank yields: what it computed is left to the prefix cache, and it waits again, with
//     its arrival. Ranks are a fixed order, so nobody takes turns at yielding, and the first is
//     never asked to. Sequences whose reader is behind yield to anybody.
//
// It keeps lists, not sequences: whoever made a sequence removes it. Not thread-safe;
// deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/pace.h"
#include "engine/core.h"
#include "engine/draft_length.h"
#include "engine/executor.h"
#include "engine/policy.h"
#include "engine/sequence.h"
#include "engine/step_cost.h"
#include "engine/wait_queue.h"

namespace kvern::engine {

// What one sequence computes in a step. Blocks are there; drafts are at the end of its tokens.
struct ScheduledSlice {
  Sequence* sequence;
  size_t first = 0;       // position of its first token
  size_t num_tokens = 0;  // drafts included
  size_t num_drafts = 0;
  bool query_only = false;  // all its tokens have K/V: only logits are wanted (K5)
  bool samples = false;
  bool is_decode = false;
  bool is_chunk = false;  // may be left between two layers …
  bool goes_on = false;   // … and was: nothing of it is computed yet
  double work = 0;
};

// A sequence that the machine has no memory for, though nothing else runs.
struct Failure {
  Sequence* sequence;
  Error error;
};

struct SchedulerCounts {
  uint64_t preemptions = 0;
  uint64_t steps_kv_bound = 0;
  uint64_t steps_queue_bound = 0;
  int64_t kv_bound_us = 0, queue_bound_us = 0, compute_bound_us = 0;
  size_t peak_running = 0;
};

class Scheduler {
 public:
  Scheduler(const CoreParts& parts, const SchedulingPolicy* policy,
            const SchedulerOptions& options);

  void Add(Sequence* sequence);  // waits from now on
  // A later completion that begins with another's blocks. False: no sequence more may run.
  bool AddForked(Sequence* sequence, kv::Sequence blocks);
  // Lets go of everything it holds or waits for, wherever it is.
  void Remove(Sequence* sequence);

  // It yields, and waits again; what it computed is left to the cache.
  void Preempt(Sequence& sequence, int64_t now_us);

  // Plans a step. Valid until the next Schedule().
  std::span<const ScheduledSlice> Schedule(int64_t now_us);
  // Whether the next one may find work where this did not, though nothing comes in.
  bool goes_on() const { return goes_on_; }
  // Who cannot go on. To be removed.
  std::span<const Failure> failures() const { return failures_; }
  // Of its chunk; null where nobody waits for the step's end.
  Pace* chunk_pace() { return pace_ ? &*pace_ : nullptr; }
  // How it went: completes what Schedule() gave.
  void Told(std::span<const SliceOutput> outputs, int64_t execute_us);
  // Nothing of it was computed. The next steps will be smaller, so that whatever makes them fail
  // ends up alone.
  void ToldFailure();

  const WaitQueue& queue() const { return queue_; }
  const std::vector<Sequence*>& running() const { return running_; }
  size_t num_waiting_prefix() const { return waiters_.size(); }
  const std::vector<Sequence*>& loading() const { return loading_; }
  const SchedulerCounts& counts() const { return counts_; }
  // Tokens that all blocks have room for.
  size_t capacity_tokens() const { return capacity_blocks_ * block_tokens_; }
  // … and those that an account may have. Any thread.
  size_t capacity_tokens(const std::string& account) const;

 private:
  // What a sequence may compute of its prompt now.
  struct Prefill {
    size_t num_tokens = 0;
    bool is_chunk = false;
  };
  enum class Admission { kAdmitted, kWaits, kNoRoom, kNoShare, kNoTurn };
  // Which memory does not suffice.
  enum class Lack { kNothing, kPool, kShare };

  Rank RankOf(const Sequence& sequence) const;
  size_t BlocksOf(size_t num_tokens) const;
  // Of whatever it lacked when it last did not fit.
  size_t AvailableBytes(const Sequence& sequence) const;
  Lack LackOf(const Sequence& sequence, size_t num_tokens) const;

  bool TakeEvents();  // whether any came
  bool PollLoads();   // whether any ended
  void CountTime(int64_t step_us);
  void UpdatePauses();
  void SetOrder();
  void Draft();
  size_t TokensKept() const;
  size_t MaxDraft(const Sequence& sequence) const;
  void PlanDecodes();
  void PlanPrefills();
  void PlanIsolated();
  bool PlanDecode(Sequence& sequence);
  bool PlanPrefill(Sequence& sequence);
  void GoOnWithChunk();
  int64_t ChunkTold(ScheduledSlice& slice, uint32_t next_layer);
  double LayerUs(size_t position, size_t num_tokens) const;
  void AddSlice(Sequence& sequence, size_t num_tokens, size_t num_drafts, bool is_chunk);
  void AddDecode(Sequence& sequence, size_t num_drafts);
  void Plan(ScheduledSlice slice);
  void SetPace();
  void DropChunk(Sequence& sequence);
  Prefill PrefillOf(size_t position, size_t num_missing) const;
  // Whether somebody waits for the step's end.
  bool is_timed() const { return options_.target_token_us > 0 && num_decodes_ > 0; }
  double TargetUs() const { return static_cast<double>(options_.target_token_us); }

  bool MakeRoom(Sequence& sequence, size_t num_tokens);
  // Whether what `other` holds would help `sequence`.
  static bool Helps(const Sequence& other, const Sequence& sequence, Lack lack) {
    return lack != Lack::kShare || other.request->account == sequence.request->account;
  }
  Sequence* Victim(const Sequence& sequence, Lack lack) const;
  bool IsHelpedByRunning(const Sequence& sequence, Lack lack) const;
  bool IsAlone(const Sequence& sequence, Lack lack) const;
  bool IsBlockedStill(const Sequence& sequence) const;
  Admission Block(Sequence& sequence, Lack lack) const;
  bool DropLease(const Sequence* but);
  void FailIfAlone(Sequence& sequence);
  bool CanGather(const Sequence& sequence, size_t bytes) const;
  void Gather(Sequence& sequence, size_t num_blocks);
  void CountBlocks(Sequence& sequence, size_t num_tokens);
  void Unplan(const Sequence& sequence);

  void AdmitWaiting();
  bool AwaitOthers(Sequence& sequence);
  Admission TryAdmit(Sequence& sequence);
  Lack LackToAdmit(const Sequence& sequence, size_t num_found) const;
  bool YieldTo(const Sequence& sequence, Lack lack = Lack::kPool);
  void SetAside(const std::string& account);
  void Start(Sequence& sequence, kv::Sequence blocks);
  kv::Prompt PromptOf(const Sequence& sequence) const;

  kv::KvCache& cache_;
  Proposer* const proposer_;
  const Clock& clock_;
  const SchedulingPolicy& policy_;
  const SchedulerOptions options_;
  size_t block_tokens_ = 0, block_bytes_ = 0, capacity_blocks_ = 0;
  size_t max_rollback_ = SIZE_MAX;
  bool has_full_groups_only_ = true;
  bool has_one_group_ = true;
  uint32_t num_layers_ = 1;
  size_t kept_tokens_ = 0;  // of a step, for prefill where some is wanted
  size_t max_chunk_tokens_ = 0;

  WaitQueue queue_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> loading_;
  std::unordered_map<uint64_t, Sequence*> waiters_;  // by WaiterId
  // Whose chunk is between two layers: in every step until it is not.
  Sequence* in_chunk_ = nullptr;

  // Of the step in progress.
  int64_t now_us_ = 0;
  uint64_t step_ = 0;
  std::vector<Sequence*> order_;  // running, best rank first
  std::vector<Sequence*> decoding_;
  std::vector<DraftRequest> drafts_;
  std::vector<ScheduledSlice> slices_;
  size_t tokens_left_ = 0;
  double work_ = 0;
  bool has_prefill_ = false, is_kv_bound_ = false, is_queue_bound_ = false;
  bool has_chunk_ = false;
  bool has_yielded_ = false;  // somebody
  size_t num_decodes_ = 0;
  bool goes_on_ = false;
  std::vector<Failure> failures_;

  StepCost cost_;
  std::optional<PaceUntil> pace_;  // of the chunk of this step; before, of that of the last
  Aim aim_;
  bool was_chunk_idle_ = false;  // there was no time for any of its layers
  double chunk_rate_us_ = 0;     // of a unit of work of chunks
  DraftTokenCost draft_cost_;
  std::optional<size_t> max_slices_;  // after a step failed
  SchedulerCounts counts_;
};

}  // namespace kvern::engine
