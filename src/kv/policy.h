// EvictionPolicy: which cached text goes first when memory is wanted (rule K9).
//
// The prefix cache offers candidates: leaves of its tree that nobody holds. A policy keeps them in
// its own order and names the next victim; it never touches blocks. The cache decides what may go
// at all (never a hole, never what is held, higher retention last), so a policy is about value
// alone. To add one, write policy/<name>.cc, declare its factory here and add its row in
// policy/table.cc: the conformance test runs over every row.
//
// One thread. All methods are O(log n) or better.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/result.h"

namespace kvern::kv {

// A leaf that could go, as it is at the moment when it becomes one.
struct EvictionCandidate {
  uint32_t item = 0;          // dense; a new text may get the id of one that is gone
  uint64_t key = 0;           // of the text: the same when the same text comes again
  uint64_t bytes = 0;         // that its eviction frees
  double recompute_cost = 0;  // of computing it again, in any one unit
  uint32_t num_uses = 0;      // lookups that found it since it was computed
  int64_t last_used_us = 0;   // when it was last held; ties go by the order of Add()
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  // REQUIRES: candidate.item is not a candidate.
  virtual void Add(const EvictionCandidate& candidate) = 0;

  // It is no longer a candidate, because it is used again or has grown a branch. Its text stays.
  // REQUIRES: it is a candidate.
  virtual void Remove(uint32_t item) = 0;

  // The candidate to evict next, which stays one; none if there is none.
  virtual std::optional<uint32_t> Victim() = 0;

  // A candidate, commonly the victim, was evicted: the policy may remember its key.
  virtual void Evict(uint32_t item) = 0;
};

struct PolicyRow {
  std::string_view name;  // as in --eviction
  std::string_view help;  // one line
  std::unique_ptr<EvictionPolicy> (*make)();
};

// The first row is the default.
std::span<const PolicyRow> Policies();

// Errors: kInvalidArgument, naming the policies that exist.
Result<const PolicyRow*> FindPolicy(std::string_view name);

// The factories, one a file.
std::unique_ptr<EvictionPolicy> MakeLruPolicy();
std::unique_ptr<EvictionPolicy> MakeLfuPolicy();
std::unique_ptr<EvictionPolicy> MakeS3FifoPolicy();
std::unique_ptr<EvictionPolicy> MakeCostPolicy();

}  // namespace kvern::kv
