#include "sim/fragmentation.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kvern/kv.h"

namespace kvern::sim {
namespace {

std::vector<kv::GroupSpec> OneGroup(const FragmentationOptions& options) {
  kv::GroupSpec group;
  group.block_bytes = options.token_bytes * options.block_tokens;
  group.block_tokens = options.block_tokens;
  return {group};
}

std::unique_ptr<kv::KvCache> MakeKvCache(kv::BlockStore* store, size_t budget_bytes,
                                         const FragmentationOptions& options) {
  kv::KvCacheOptions cache;
  cache.groups = OneGroup(options);
  cache.budget_bytes = budget_bytes;
  return kv::KvCache::Make(std::move(cache), store).value();
}

// What is held of the budget, whoever hands it out: the arena (regions) or the cache (blocks).
class Memory {
 public:
  Memory(std::unique_ptr<kv::ArenaStore> store, const FragmentationOptions& options)
      : store_(std::move(store)),
        cache_(MakeKvCache(store_.get(), store_->budget_bytes(), options)),
        ns_(cache_->OpenNamespace({}).value()),
        max_tokens_(options.max_tokens) {}

  std::unique_ptr<kv::SequenceCache> MakeCache(const kv::Strategy& strategy) {
    kv::CacheOptions options;
    options.cache = cache_.get();
    options.store = store_.get();
    options.ns = ns_;
    options.max_tokens = max_tokens_;
    return strategy.make(std::move(options));
  }

  size_t free_bytes() const {
    const kv::KvStats stats = cache_->stats();
    return HandsOutBlocks(stats) ? stats.bytes.free : store_->budget_bytes() - store_->bytes_held();
  }

  // The most that one sequence could have now: one hole, or any free blocks.
  size_t usable_bytes() const {
    const kv::KvStats stats = cache_->stats();
    return HandsOutBlocks(stats) ? stats.bytes.free : store_->stats().largest_hole_bytes;
  }

  // What the Extend(num_tokens) that has just failed asked for at once.
  size_t RefusedBytes(const kv::SequenceCache& cache, size_t num_tokens) {
    const kv::ArenaStats arena = store_->stats();
    if (arena.num_refused > std::exchange(num_refused_, arena.num_refused)) {
      return arena.last_refused_bytes;
    }
    const kv::GroupSpec& group = cache_->options().groups.front();
    const size_t num_blocks =
        (cache.length() + num_tokens + group.block_tokens - 1) / group.block_tokens;
    return (num_blocks - cache.View().num_blocks) * group.block_bytes;
  }

  uint64_t bytes_copied() const { return store_->stats().bytes_copied; }
  size_t budget_bytes() const { return store_->budget_bytes(); }

 private:
  // A strategy does one or the other.
  static bool HandsOutBlocks(const kv::KvStats& stats) { return stats.peak_bytes.active > 0; }

  const std::unique_ptr<kv::ArenaStore> store_;
  const std::unique_ptr<kv::KvCache> cache_;
  const kv::NamespaceId ns_;
  const size_t max_tokens_;
  uint64_t num_refused_ = 0;  // by the store, as last seen
};

// Requests go by their index in the trace, which is also their age: all held are older than all
// preempted, and these are older than all that were never admitted.
class Replay {
 public:
  Replay(const LengthTrace& trace, const kv::Strategy& strategy,
         const FragmentationOptions& options, Memory& memory)
      : trace_(trace), strategy_(strategy), options_(options), memory_(memory) {}

  FragmentationResult Run() {
    bool had_queue = true;
    while (true) {
      num_refused_ = 0;
      is_refused_by_holes_ = false;
      Finish();
      Grow();
      if (num_refused_ == 0 || held_.empty()) Admit();
      if (held_.empty()) {
        if (next_ == trace_.size()) break;
        WaitForNext();
      } else {
        // The end, when nobody is left to come, says nothing about who fits.
        const bool has_queue = !preempted_.empty() || next_ < trace_.size();
        if (has_queue || had_queue) Sample();
        had_queue = has_queue;
        ++step_;
      }
    }
    return Summarize();
  }

 private:
  struct Held {
    size_t request;
    std::unique_ptr<kv::SequenceCache> cache;
  };
  struct Waiting {
    size_t request;
    size_t num_tokens;  // that it wants at once
  };

  void Finish() {
    std::erase_if(held_, [this](const Held& held) {
      if (held.cache->length() < trace_[held.request].num_tokens()) return false;
      num_tokens_ -= held.cache->length();
      ++result_.num_completed;
      return true;
    });
  }

  void Grow() {
    for (const Held& held : held_) num_refused_ += TryExtend(*held.cache, 1) ? 0 : 1;
    result_.num_waits += num_refused_;
    if (num_refused_ == held_.size() && !held_.empty()) Preempt();
  }

  void Admit() {
    while (const std::optional<Waiting> head = Head()) {
      auto cache = memory_.MakeCache(strategy_);
      if (TryExtend(*cache, head->num_tokens)) {
        held_.push_back({head->request, std::move(cache)});
        if (!preempted_.empty()) result_.tokens_recomputed += head->num_tokens - 1;
      } else if (held_.empty()) {
        ++result_.num_never_fit;
      } else {
        return;
      }
      TakeHead();
    }
  }

  // The request that is admitted next, if it is there already.
  std::optional<Waiting> Head() {
    if (!preempted_.empty()) return preempted_.back();
    while (next_ < trace_.size() && HasArrived(trace_[next_])) {
      if (trace_[next_].num_tokens() <= options_.max_tokens) {
        return Waiting{next_, trace_[next_].context_tokens};
      }
      ++result_.num_too_long;
      ++next_;
    }
    return std::nullopt;
  }

  void TakeHead() {
    if (preempted_.empty()) {
      ++next_;
    } else {
      preempted_.pop_back();
    }
  }

  bool HasArrived(const LengthRequest& request) const {
    return !options_.step_ms || request.arrival_ms / *options_.step_ms <= step_;
  }

  void WaitForNext() {
    const uint64_t arrival = trace_[next_].arrival_ms / *options_.step_ms;
    sums_.free +=
        static_cast<double>(memory_.budget_bytes()) * static_cast<double>(arrival - step_);
    num_sampled_ += arrival - step_;
    step_ = arrival;
  }

  // The youngest. It will ask for the token that it did not get, too, so that it gets further.
  void Preempt() {
    const size_t num_tokens = held_.back().cache->length();
    preempted_.push_back({held_.back().request, num_tokens + 1});
    ++result_.num_preemptions;
    num_tokens_ -= num_tokens;
    held_.pop_back();
  }

  bool TryExtend(kv::SequenceCache& cache, size_t num_tokens) {
    if (cache.Extend(num_tokens).ok()) {
      num_tokens_ += num_tokens;
      return true;
    }
    const size_t free_bytes = memory_.free_bytes();
    ++result_.num_refusals;
    if (free_bytes >= memory_.RefusedBytes(cache, num_tokens)) {
      is_refused_by_holes_ = true;
      ++result_.num_refusals_by_holes;
      result_.peak_external_bytes = std::max(result_.peak_external_bytes, free_bytes);
    }
    return false;
  }

  void Sample() {
    ++num_sampled_;
    const size_t free_bytes = memory_.free_bytes();
    const size_t used_bytes = num_tokens_ * options_.token_bytes;
    const size_t internal_bytes = memory_.budget_bytes() - free_bytes - used_bytes;
    sums_.used += static_cast<double>(used_bytes);
    sums_.internal += static_cast<double>(internal_bytes);
    (is_refused_by_holes_ ? sums_.external : sums_.free) += static_cast<double>(free_bytes);
    result_.peak_internal_bytes = std::max(result_.peak_internal_bytes, internal_bytes);
    if (free_bytes > 0) {
      ++num_steps_with_free_;
      sum_of_fragmentation_ +=
          1 - static_cast<double>(memory_.usable_bytes()) / static_cast<double>(free_bytes);
    }
    sum_of_held_ += static_cast<double>(held_.size());
    result_.peak_held = std::max(result_.peak_held, held_.size());
  }

  FragmentationResult Summarize() {
    result_.num_steps = step_;
    result_.bytes_copied = memory_.bytes_copied();
    if (num_sampled_ == 0) {  // nobody could be admitted
      result_.mean_bytes.free = static_cast<double>(memory_.budget_bytes());
      return result_;
    }
    const double num_steps = static_cast<double>(num_sampled_);
    result_.mean_bytes = {.used = sums_.used / num_steps,
                          .internal = sums_.internal / num_steps,
                          .external = sums_.external / num_steps,
                          .free = sums_.free / num_steps};
    result_.mean_held = sum_of_held_ / num_steps;
    if (num_steps_with_free_ > 0) {
      result_.mean_fragmentation =
          sum_of_fragmentation_ / static_cast<double>(num_steps_with_free_);
    }
    return result_;
  }

  const LengthTrace& trace_;
  const kv::Strategy& strategy_;
  const FragmentationOptions& options_;
  Memory& memory_;

  uint64_t step_ = 0;
  size_t next_ = 0;                   // the oldest request that was never admitted
  std::vector<Held> held_;            // the oldest first
  std::vector<Waiting> preempted_;    // the oldest last: the head of the queue
  size_t num_tokens_ = 0;             // of all held
  size_t num_refused_ = 0;            // to grow, in this step
  bool is_refused_by_holes_ = false;  // somebody, in this step

  uint64_t num_sampled_ = 0;  // steps, in the sums below
  BudgetShares sums_;
  double sum_of_held_ = 0;
  double sum_of_fragmentation_ = 0;
  uint64_t num_steps_with_free_ = 0;
  FragmentationResult result_;
};

}  // namespace

Result<FragmentationResult> ReplayLengths(const LengthTrace& trace, const kv::Strategy& strategy,
                                          const FragmentationOptions& options) {
  CHECK(!options.step_ms || *options.step_ms > 0);
  const size_t block_bytes = options.token_bytes * options.block_tokens;
  CHECK(block_bytes > 0 && options.budget_bytes >= block_bytes);
  CHECK(options.budget_bytes / block_bytes <= kMaxBlocks);
  const size_t whole_blocks = options.budget_bytes - options.budget_bytes % block_bytes;
  KVERN_ASSIGN_OR_RETURN(auto store, kv::ArenaStore::Create(whole_blocks, options.fit));
  Memory memory(std::move(store), options);
  return Replay(trace, strategy, options, memory).Run();
}

}  // namespace kvern::sim
