// What is behind Core. Shared by core.cc (requests come and go) and core_step.cc (a step).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/core.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/shared_groups.h"

namespace kvern::engine {

class Core::Impl {
 public:
  Impl(CoreParts parts, const SchedulingPolicy* policy, const SchedulerOptions& scheduler,
       const SpeculationOptions& speculation)
      : parts_(std::move(parts)),
        options_(scheduler),
        speculation_(speculation),
        scheduler_(parts_, policy, scheduler),
        context_(std::min<size_t>(parts_.executor->info().max_positions,
                                  scheduler_.capacity_tokens())) {}

  Status Check(const Request& request) const;
  Result<RequestId> Submit(Request request, ReplySink* sink, std::optional<int64_t> arrival_us);
  void End(RequestId id, FinishReason reason);
  bool Step();
  bool idle() const { return requests_.empty(); }
  std::optional<int64_t> next_wake_us() const;
  std::optional<Report> report(RequestId id) const;
  EngineStats stats() const;
  Result<kv::NamespaceId> NamespaceOf(const Request& request);
  void CheckInvariants() const;
  void CancelAll();

 private:
  Status CheckFits(const Request& request) const;
  size_t ContextOf(const Request& request) const;
  Status MakeQueueRoom(const Request& request);
  Tenant* TenantOf(const std::string& name);

  void EndAll(LiveRequest& request, FinishReason reason);
  void EndOverdue();
  void Fail(Sequence& sequence, Error error);
  void BeginChunk(const Sequence& sequence);
  void Deliver(LiveRequest& request);
  void Finish(Sequence& sequence, FinishReason reason);
  void BuryFinished();
  void CompleteReport(const LiveRequest& request, Report& report) const;

  void Run(std::span<const ScheduledSlice> slices, int64_t begin_us);
  void BuildPlan(std::span<const ScheduledSlice> slices);
  Result<std::span<const SliceOutput>> Execute();
  void RollBack(std::span<const ScheduledSlice> slices, const Error& error);
  void Commit(const ScheduledSlice& slice, const SliceOutput& output);
  bool CheckStored(const ScheduledSlice& slice, const SliceOutput& output);
  void EndPrefill(Sequence& sequence);
  void CommitTokens(const ScheduledSlice& slice, const SliceOutput& output);
  std::optional<FinishReason> Accept(Sequence& sequence, const SampledToken& token);

  const CoreParts parts_;
  const SchedulerOptions options_;
  const SpeculationOptions speculation_;
  Scheduler scheduler_;
  const size_t context_;
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<LiveRequest>> requests_;
  std::unordered_map<std::string, kv::NamespaceId> namespaces_;
  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::set<std::pair<int64_t, uint64_t>> deadlines_;
  std::vector<LiveRequest*> finished_;  // to be buried when nobody looks at them any more

  // Of the step in progress; their memory is used again.
  int64_t now_us_ = 0;
  std::vector<PagedView> views_;
  std::vector<SampleRequest> samples_;
  StepPlan plan_;
  SharedGroups shared_groups_;
  Chunk chunk_;

  EngineStats counts_;  // those that the scheduler and the cache do not keep
};

}  // namespace kvern::engine
