// What the KV library tells about itself: how a prompt was split into hits and misses, why, and
// statistics. Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/ids.h"
#include "kvern/kv_store.h"

namespace kvern::kv {

// Why tokens of a prompt must be computed (rule K11).
enum class MissReason {
  kNeverSeen,       // no text of this namespace ever went on like this
  kEvicted,         // it was there: see Miss::when_us and Miss::cause
  kUnknown,         // not there now, and the history of evictions does not reach back to tell more
  kOtherToken,      // cached texts go on with another token: see Miss::cached
  kOtherNamespace,  // only another namespace has this text
  kLogitsNeeded,    // the last token's K/V is there, but its logits must be computed
  kGroupNotHeld,    // full attention has it; a window or state at this point is gone (Miss::group)
  kTierFailed,      // a tier had it and the load failed: see Miss::cause
  kPolicyOff,       // the request does not use the cache
};
inline constexpr size_t kNumMissReasons = 9;
std::string_view ToString(MissReason reason);

// A run of tokens that must be computed, and why.
struct Miss {
  MissReason reason = MissReason::kNeverSeen;
  size_t position = 0;  // of the first token
  size_t num_tokens = 0;
  // kOtherToken: where the texts part (`position`, or later if less than a block cannot be reused),
  std::optional<size_t> differs_at = {};
  std::optional<TokenId> wanted = {};   // … the prompt's token there …
  std::optional<TokenId> cached = {};   // … and the one that a cached text has there
  std::optional<int64_t> when_us = {};  // kEvicted
  std::optional<GroupId> group = {};    // kGroupNotHeld
  std::string cause = {};               // kEvicted: by what; kTierFailed: why
};

// Where a prompt's tokens came from. Sums exactly to the prompt.
struct PromptSplit {
  size_t ram = 0;        // whole blocks that were in memory
  size_t tier = 0;       // loaded from a tier
  size_t in_flight = 0;  // waited for: another sequence was computing or loading them
  size_t partial = 0;    // rows copied out of a block that matches in part
  std::array<size_t, kNumMissReasons> miss{};

  size_t hit() const { return ram + tier + in_flight + partial; }
  size_t missed() const;
};

// What Explain() says. The first differing token is that of the first kOtherToken miss.
struct Explanation {
  PromptSplit split;  // if the prompt came now; in_flight is what it could wait for
  std::vector<Miss> misses;
  size_t nodes_visited = 0;    // of the tree; all in the asked namespace
  std::string ToText() const;  // lines for people
};

// Counts of values in [2^(i-1), 2^i); bucket 0 is zero, the last has all larger ones.
struct Histogram {
  static constexpr size_t kNumBuckets = 48;
  std::array<uint64_t, kNumBuckets> buckets{};
  uint64_t count = 0;
  uint64_t sum = 0;
};

// Of blocks or of bytes.
struct StateCounts {
  size_t active = 0;    // referenced
  size_t cached = 0;    // kept for reuse, not referenced
  size_t reserved = 0;  // promised, destinations of loads, ends of slabs
  size_t free = 0;

  size_t Sum() const { return active + cached + reserved + free; }
};

// Bytes of blocks that the account of one namespace holds. A shared block counts once.
struct NamespaceUsage {
  size_t active_bytes = 0;
  size_t cached_bytes = 0;
  size_t reserved_bytes = 0;
  size_t peak_active_bytes = 0;
  size_t peak_cached_bytes = 0;
};

enum class EvictionCause {
  kPolicy,       // memory was wanted, and the policy named it
  kWindow,       // of a window or state, which no text needed
  kExpired,      // past its time to live
  kDropped,      // by DropCached()
  kUnreachable,  // what it followed is gone, or a longer text has it
  kShare,        // its account was at its share
};
inline constexpr size_t kNumEvictionCauses = 6;
std::string_view ToString(EvictionCause cause);

// Why a record is refused. In the order of the checks.
enum class RecordRefusal {
  kTruncated,         // it ends before its length
  kBadMagic,          // it is no record
  kOtherVersion,      // of the format
  kTrailingBytes,     // it goes on after its length
  kDamaged,           // the checksum is wrong
  kNotAuthentic,      // a key is given, and the MAC is missing or wrong
  kMalformed,         // whole, but not as the format says: the writer is at fault
  kOtherNumerics,     // numerics version
  kOtherFingerprint,  // RecordError names the field
  kOtherNamespace,
  kOtherLayout,  // group, kind, window, block_tokens or block_bytes
  kOtherPosition,
  kOtherParent,
  kOtherTokens,
};
inline constexpr size_t kNumRecordRefusals = size_t(RecordRefusal::kOtherTokens) + 1;

std::string_view ToString(RecordRefusal refusal);  // "other_numerics", as in metrics

struct KvStats {
  StateCounts bytes;  // sums to budget_bytes, at every moment
  StateCounts peak_bytes;
  size_t budget_bytes = 0;
  size_t index_bytes = 0;  // of the prefix tree, its history and the library's own tables
  PromptSplit prompts;     // in tokens, of prompts when first admitted
  PromptSplit resumes;     // the same of sequences that came back after preemption
  uint64_t num_prompts = 0;
  uint64_t num_resumes = 0;
  std::array<uint64_t, kNumEvictionCauses> evicted_blocks{};
  uint64_t blocks_published = 0;
  uint64_t blocks_merged = 0;  // duplicates found equal
  uint64_t rows_copied = 0;    // by copy on write and partial reuse
  uint64_t one_answer_violations = 0;
  uint64_t loads_started = 0;
  uint64_t blocks_loaded = 0;
  uint64_t blocks_failed = 0;  // loads that failed, refused records included
  std::array<uint64_t, kNumRecordRefusals> records_refused{};
  uint64_t take_overs = 0;
  Histogram lifetime_us;           // of a block, from publication to eviction
  Histogram idle_before_evict_us;  // from its last use to eviction
  Histogram reuse_gap_us;          // between uses of cached text
};

}  // namespace kvern::kv
