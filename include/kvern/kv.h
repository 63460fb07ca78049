// The Kvern KV library: blocks of K/V, the sequences that use them, and the prefix cache that finds
// them again, under one memory budget. It knows nothing of models: it moves opaque blocks of bytes,
// compares token ids, and is told the time.
//
// One request, from the engine's side (examples/kv_engine.cc is a whole engine in this form):
//
//   Lease lease = cache.Lookup({ns, prompt});        // what is there is pinned while we decide
//   if (lease.producer()) …                          // Wait(), or go on alone
//   if (lease.num_tier_tokens() > 0) …               // StartLoad(), Poll(), Install()
//   Result<Sequence> sequence = cache.Admit(lease);  // shares blocks, copies a partial one
//   loop:
//     sequence->Reserve(n);                          // all memory that the step needs, or nothing
//     sequence->Append(tokens);                      // n more rows are writable
//     …the engine computes and writes rows through sequence->View(group)…
//     sequence->Commit(length);                      // final: full blocks become findable
//     cache.TakeEvents();                            // waiters that can go on
//
// What holds whatever the order of calls: a block is written only by the one sequence that holds
// it, and never once it is published; blocks come zeroed; no block is found in two namespaces;
// memory never exceeds the budget; a call that fails has changed nothing, though cached text may
// have been evicted for it.
//
// Threads: one writer at a time calls everything. Explain(), stats(), usage() and Tree() may be
// called from any thread at any time. Handles (Lease, Waiter, Sequence) belong to the writer too;
// they are move-only, give back what they hold when destroyed, and must not outlive their cache.
//
// Sizes: positions and lengths are in tokens, sizes in bytes, times in microseconds of any
// monotonic clock that the caller owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvern/ids.h"
#include "kvern/kv_report.h"
#include "kvern/kv_store.h"
#include "kvern/kv_tier.h"
#include "kvern/paged_view.h"
#include "kvern/result.h"

namespace kvern::kv {

enum class NamespaceId : uint32_t {};
enum class SequenceId : uint64_t {};
enum class WaiterId : uint64_t {};

// Who may share cached text with whom: texts are shared exactly where all but the account are
// equal.
struct NamespaceSpec {
  // Everything that K/V depends on beside tokens (rule K12). The library adds its groups.
  uint32_t numerics_version = 0;
  std::vector<FingerprintField> fingerprint = {};
  std::string adapter = {};  // empty: none
  std::string tenant = {};   // a secret salt, or a name; empty: everybody
  // Whom its blocks and spans are charged to. The first to open a namespace says it for good.
  // Empty: its blocks to itself alone, its spans to the tenant.
  std::string account = {};
};

// How much of the memory an account may have, and must be left. Rounded down to whole blocks.
struct Quota {
  // Its active, cached and promised blocks together: at its share, it evicts its own cached text.
  size_t share_bytes = SIZE_MAX;
  // Of its cached blocks, what no other account's need takes. (With several groups it may, where
  // their blocks are too scattered otherwise.)
  size_t floor_bytes = 0;
};
struct AccountQuota {
  std::string account;
  Quota quota;
};

// Bytes of blocks that an account could have: the lesser of both.
struct Room {
  size_t share = SIZE_MAX;  // as its own share goes
  size_t pool = 0;          // as memory goes, without the floors of others
};

// How much a text is worth keeping. Soft: it orders eviction and never refuses memory.
enum class Retention : uint8_t { kLow, kNormal, kHigh };

struct KvCacheOptions {
  std::vector<GroupSpec> groups = {};  // one to four; block_tokens is the same in all
  size_t budget_bytes = 0;             // rounded down to whole blocks or slabs
  size_t min_slab_bytes = 4 << 20;     // what the store is asked for at once, at least
  std::string eviction = "lru";        // a row of kv/policy/table.cc
  size_t history_blocks = 65536;       // evictions that are remembered, to explain misses
  size_t span_bytes_per_tenant = 0;    // that spans may protect
  Tier* tier = nullptr;                // must outlive the cache
  size_t tier_io_blocks = 64;          // loads and stores under way at once
  std::optional<MacKey> mac_key = {};  // records carry and must prove a MAC if set (rule K12)
  // Cost of computing `num_tokens` from `position` on, in any unit: for the policy `cost`. None:
  // num_tokens × (1024 + position + num_tokens / 2), a transformer's shape.
  std::function<double(size_t position, size_t num_tokens)> recompute_cost = {};
};

struct Prompt {
  NamespaceId ns{};
  std::span<const TokenId> tokens;  // at least one; valid while its lease or waiter lives
  bool use_cache = true;            // false: finds nothing and is never found
  // At most this many tokens are taken from the cache. An engine that cannot compute the logits
  // of a stored token without storing it again asks for one token less than the prompt.
  size_t max_hit = SIZE_MAX;
  Retention retention = Retention::kNormal;
  std::optional<int64_t> ttl_us = {};  // keep no longer than this after the last use
};

struct AdmitOptions {
  int priority = 0;           // higher is better
  bool publish = true;        // false: nobody finds or awaits what it computes
  bool is_resume = false;     // it comes back after preemption: counted apart
  size_t reserve_tokens = 0;  // admit only with room for so many more, as Reserve() does
};

// Who is computing or loading what a lease lacks.
struct Production {
  std::optional<SequenceId> sequence;  // none while it is not admitted: it loads, or takes over
  size_t end = 0;  // it will publish the prompt's tokens up to here, a multiple of the block
};

enum class LoadState { kPending, kLoaded, kFailed };
struct LoadProgress {
  std::vector<LoadState> blocks;  // in position order
  std::string failure;            // of the first that failed
  bool done = true;               // no I/O is under way
};

struct SpanGrant {
  size_t num_tokens = 0;  // protected, from the start of the text: what the budget allowed
  int64_t expires_us = 0;
};

struct Event {
  enum class Kind {
    kReady,     // what it waited for is published: Retry()
    kTakeOver,  // its producer is gone, and it is to compute the rest itself: Retry(), then Admit()
  };
  Kind kind;
  WaiterId waiter;
};

// One node of the prefix tree, for those who draw it. Children follow their parent.
struct TreeNode {
  size_t depth = 0;     // in nodes; the root of a namespace has depth 0 and no tokens
  size_t position = 0;  // of its first token
  std::vector<TokenId> tokens;
  size_t num_holders = 0;  // leases and sequences that pin it
  uint64_t num_uses = 0;
};

class KvCache;

// What a lookup found, pinned until the lease ends or is admitted. Empty when moved from.
class Lease {
 public:
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  ~Lease();

  size_t num_tokens() const;          // of the prompt
  size_t num_ram_tokens() const;      // whole blocks at the start that are in memory
  size_t num_partial_tokens() const;  // rows after those, which Admit() copies
  size_t num_tier_tokens() const;     // after the RAM tokens, on the tier
  // Of what comes after the RAM tokens, as it is now: somebody may have begun since the lookup.
  std::optional<Production> producer() const;
  std::span<const Miss> misses() const;  // the rest, if neither loaded nor awaited

 private:
  friend class KvCache;
  struct Impl;
  explicit Lease(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A request that waits for another's prefix. Holds no blocks. Destruction gives up waiting.
class Waiter {
 public:
  Waiter(Waiter&&) noexcept;
  Waiter& operator=(Waiter&&) noexcept;
  ~Waiter();

  WaiterId id() const;
  std::optional<SequenceId> producer() const;  // none while the next one is not admitted

 private:
  friend class KvCache;
  struct Impl;
  explicit Waiter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One line of generation: its blocks in each group. Destruction releases them; what was published
// stays cached, and waiters of what was not get another producer.
//
// 0 ≤ committed ≤ length. Rows of [0, length) have room, rows of [0, committed) are final.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();

  SequenceId id() const;
  size_t length() const;
  size_t committed() const;
  size_t num_published() const;  // tokens that others can find
  // Where its prompt came from when it was admitted, and why the rest did not.
  const PromptSplit& split() const;
  std::span<const Miss> misses() const;
  // Its own, or the best of those who wait for it (rule K6).
  int effective_priority() const;

  // Bytes that Reserve(num_tokens) would want beside what is promised already.
  size_t BytesNeeded(size_t num_tokens) const;

  // Promises every block and copy that Append() of so many tokens takes, in all groups, evicting
  // cached text if it must. Good for the next Append() alone, and until Truncate() or Fork().
  // Replaces an earlier promise; an error keeps it. Errors: kOutOfMemory.
  Status Reserve(size_t num_tokens);

  // Makes positions [length, length + tokens.size()) writable. Cannot fail within what was
  // reserved. A state group gets fresh zeroed blocks for the new positions, after that of `length`.
  // Errors: kOutOfMemory.
  Status Append(std::span<const TokenId> tokens);

  // Declares [0, length) final, publishes its full blocks, merges those that another sequence
  // published first, and lets go of what its windows no longer see.
  // REQUIRES: committed() ≤ length ≤ this->length().
  void Commit(size_t length);

  // Forgets positions from `length` on; never changes what others see. Errors: kInvalidArgument
  // where a window or state group no longer has what that length needs (see max_rollback): start
  // again with Lookup().
  Status Truncate(size_t length);

  // Another sequence with the same history, sharing all blocks. It publishes as this one does, but
  // nobody waits for it.
  Sequence Fork();

  // Blocks for kernels, in position order, valid until the sequence changes. What a window no
  // longer sees is one zero block. A state group has one block per position that it can go back
  // to, oldest first; the last is that of length(), and the last before an Append() its input.
  PagedView View(GroupId group) const;

 private:
  friend class KvCache;
  struct Impl;
  explicit Sequence(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class KvCache {
 public:
  // `store` must outlive the cache. Errors: kInvalidArgument, naming the option.
  static Result<std::unique_ptr<KvCache>> Make(KvCacheOptions options, BlockStore* store);
  ~KvCache();  // REQUIRES: no handle is left.
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // The time of all that follows, until the next call. REQUIRES: not less than before.
  void SetTime(int64_t now_us);

  // The same spec always gives the same id. Errors: kInvalidArgument, naming the fingerprint field.
  Result<NamespaceId> OpenNamespace(const NamespaceSpec& spec);

  // In place of those of before; an account that is not named has none. What is cached beyond a
  // share goes at once, what is active is left to end. Errors: kInvalidArgument if the floors are
  // more than the budget, and nothing has changed.
  Status SetQuotas(std::span<const AccountQuota> quotas);
  // What a namespace's account could have now, its own cached text included.
  Room RoomFor(NamespaceId ns) const;

  // Finds the longest usable prefix: O(tokens), without a side effect but pinning and use counts.
  Lease Lookup(const Prompt& prompt);

  // Starts to load the lease's tier tokens; others may wait for it from then on. Errors:
  // kOutOfMemory; kInvalidArgument if there are none, or a load was started.
  Status StartLoad(Lease& lease);
  // How far its blocks are. A lease that ends earlier gives their memory back at once: the I/O goes
  // on into buffers of the library's own.
  LoadProgress Poll(Lease& lease);
  // Publishes what was loaded and verified, up to the first failure; the lease has it in RAM then.
  // The rest of the lease becomes a miss if a block failed. Returns the tokens gained, those that
  // others published meanwhile included.
  size_t Install(Lease& lease);

  // Begins a sequence with what the lease has in RAM. What the prompt lacks is announced: others
  // may wait for it. Takes the lease's pins on success; leaves out the partial rows if only so
  // there is room. Errors: kOutOfMemory; the lease is as before.
  Result<Sequence> Admit(Lease& lease, const AdmitOptions& options = {});

  // Lets go of everything the lease holds and waits for its producer. Errors: kInvalidArgument if
  // there is none; the lease is as before.
  Result<Waiter> Wait(Lease& lease, int priority);
  // After an event, or to go on alone: looks up again. What waiting brought counts as in-flight.
  Lease Retry(Waiter waiter);
  // Waiters that can go on, best first. Each is told once.
  std::vector<Event> TakeEvents();

  // Protects the cached prefix of `tokens` for `ttl_us`, as far as the tenant's budget goes: it is
  // evicted last (and then only for running work). Lengthens an earlier span; 0 ends it.
  SpanGrant KeepSpan(NamespaceId ns, std::span<const TokenId> tokens, int64_t ttl_us);

  // Makes room for so many more blocks of each group: evicts, and moves together what is cached but
  // not held. For a text that does not fit although there are bytes enough: they may lie among
  // blocks of other groups, and what a lease or a sequence holds cannot move. Before its Lookup(),
  // when little is held. Errors: kOutOfMemory, and nothing has changed.
  Status MakeRoom(NamespaceId ns, size_t num_blocks);

  // Evicts everything that nobody holds, of one namespace or of all. Returns the blocks evicted.
  size_t DropCached(std::optional<NamespaceId> ns = {});

  // Completes I/O with the tier; Poll() does so too.
  void PollTier();

  // Writes records of the cached text that matches `tokens`, in order (docs/record-format.md).
  std::vector<std::byte> Export(NamespaceId ns, std::span<const TokenId> tokens) const;
  // Verifies records and publishes their blocks as cached text. Stops at the first that is refused
  // or does not fit. Errors: kCorrupt and kOutOfMemory, with the reason; what came before is kept.
  Result<size_t> Import(NamespaceId ns, std::span<const std::byte> records);

  // Any thread.
  Explanation Explain(NamespaceId ns, std::span<const TokenId> tokens) const;
  KvStats stats() const;
  NamespaceUsage usage(NamespaceId ns) const;  // of the account that it is charged to
  Quota quota(std::string_view account) const;
  Room CapacityOf(std::string_view account) const;  // with nothing cached or active
  std::vector<TreeNode> Tree(NamespaceId ns) const;
  const KvCacheOptions& options() const;

  // Aborts with a message if an invariant does not hold. O(blocks); for tests and debug builds.
  void CheckInvariants() const;

 private:
  friend class Lease;
  friend class Waiter;
  friend class Sequence;
  struct Impl;
  explicit KvCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvern::kv
