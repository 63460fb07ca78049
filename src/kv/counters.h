// Counters: what the KV library counts as it goes. The writer adds, any thread reads; each number
// is whole, and numbers of one moment may be read a little apart.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kvern/kv_report.h"

namespace kvern::kv {

class Counter {
 public:
  // The writer's: no other thread adds, so nothing is lost.
  void Add(uint64_t count) {
    value_.store(value_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  uint64_t Read() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class HistogramCounter {
 public:
  void Add(uint64_t value) {
    const auto bucket = static_cast<size_t>(std::bit_width(value));
    buckets_[bucket < Histogram::kNumBuckets ? bucket : Histogram::kNumBuckets - 1].Add(1);
    count_.Add(1);
    sum_.Add(value);
  }
  Histogram Read() const {
    Histogram histogram;
    for (size_t i = 0; i < buckets_.size(); ++i) histogram.buckets[i] = buckets_[i].Read();
    histogram.count = count_.Read();
    histogram.sum = sum_.Read();
    return histogram;
  }

 private:
  std::array<Counter, Histogram::kNumBuckets> buckets_;
  Counter count_;
  Counter sum_;
};

class SplitCounter {
 public:
  void Add(const PromptSplit& split) {
    ram_.Add(split.ram);
    tier_.Add(split.tier);
    in_flight_.Add(split.in_flight);
    partial_.Add(split.partial);
    for (size_t i = 0; i < miss_.size(); ++i) miss_[i].Add(split.miss[i]);
    count_.Add(1);
  }
  PromptSplit Read() const {
    PromptSplit split;
    split.ram = ram_.Read();
    split.tier = tier_.Read();
    split.in_flight = in_flight_.Read();
    split.partial = partial_.Read();
    for (size_t i = 0; i < miss_.size(); ++i) split.miss[i] = miss_[i].Read();
    return split;
  }
  uint64_t count() const { return count_.Read(); }

 private:
  Counter ram_, tier_, in_flight_, partial_, count_;
  std::array<Counter, kNumMissReasons> miss_;
};

struct Counters {
  SplitCounter prompts;
  SplitCounter resumes;
  std::array<Counter, kNumEvictionCauses> evicted_blocks;
  Counter blocks_published;
  Counter blocks_merged;
  Counter rows_copied;
  Counter one_answer_violations;
  Counter loads_started;
  Counter blocks_loaded;
  Counter blocks_failed;
  std::array<Counter, kNumRecordRefusals> records_refused;
  HistogramCounter lifetime_us;
  HistogramCounter idle_before_evict_us;
  HistogramCounter reuse_gap_us;
};

}  // namespace kvern::kv
