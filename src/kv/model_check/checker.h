// Does operations to a cache and to the naive model side by side, and aborts with a finding where
// they differ. One Checker is one cache, from its construction to the proof that nothing leaked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kv/model_check/content.h"
#include "kv/model_check/naive_index.h"
#include "kv/model_check/naive_sequence.h"
#include "kv/model_check/operation.h"
#include "kv/model_check/setup.h"
#include "kv/tier/memory.h"
#include "kvern/kv.h"

namespace kvern::kv::model_check {

// What goes wrong on purpose, to see that the checker notices.
enum class Mutation {
  kNone,
  kFlipsByte,        // of a block that a sequence shows
  kDoesNotZero,      // the store
  kCopiesTooLittle,  // the store
  kMixesNamespaces,  // all namespaces are one
  kDropsEvent,       // one waiter is not told
  kLeaks,            // a lease is never given back
  kForgetsText,      // the model does not know of a block that was published
};

struct CheckerOptions {
  size_t full_check_every = 1;  // steps: CheckInvariants() and whatever else is O(pool)
  bool is_traced = false;       // print what each operation did
  Mutation mutation = Mutation::kNone;
};

class Checker {
 public:
  Checker(const CacheSetup& setup, const CheckerOptions& options);
  ~Checker();

  void Do(const Operation& operation);
  // Drops everything and checks that nothing is left.
  void Finish();

 private:
  struct LiveLease {
    explicit LiveLease(std::shared_ptr<const Text> text) : shared_prompt(std::move(text)) {}
    const Text& prompt() const { return *shared_prompt; }

    std::shared_ptr<const Text>
        shared_prompt;  // outlives the lease, and the waiter that it becomes
    std::optional<Lease> real;
    bool uses_cache = true;
    size_t max_hit = SIZE_MAX;
    size_t ram = 0;  // as it was when last looked at
    size_t partial = 0;
    size_t tier = 0;
    std::optional<Production> producer;
    std::vector<Miss> misses;
    std::optional<size_t> ram_before_wait;
    bool is_loading = false;
    bool was_loaded = false;  // something was installed or failed to be
    bool takes_over = false;  // others may wait for it to be admitted
    bool is_exposed = true;   // nothing of what it found was taken out of the tree
    bool lost_rows = false;   // the partial ones, for want of memory to copy them
  };
  struct LiveSequence {
    Sequence real;
    NaiveSequence model;
  };
  struct LiveWaiter {
    LiveWaiter(Waiter waiter, std::shared_ptr<const Text> text)
        : shared_prompt(std::move(text)), real(std::move(waiter)) {}
    const Text& prompt() const { return *shared_prompt; }

    std::shared_ptr<const Text> shared_prompt;
    Waiter real;
    size_t max_hit = SIZE_MAX;
    int priority = 0;
    uint64_t arrival = 0;
    size_t end = 0;
    size_t ram_before_wait = 0;
    bool was_told = false;
    bool takes_over = false;
  };
  struct ExportedText {
    Text text;
    std::vector<std::byte> records;
  };

  template <typename T>
  using List = std::vector<std::unique_ptr<T>>;

  // Which object an operation names; null where there is none.
  template <typename T>
  static T* Pick(List<T>& list, uint32_t object) {
    return list.empty() ? nullptr : list[object % list.size()].get();
  }
  template <typename T>
  static void Erase(List<T>& list, const T* object) {
    std::erase_if(list, [&](const auto& entry) { return entry.get() == object; });
  }

  // checker.cc
  void Dispatch(const Operation& operation);
  void CommitSome(LiveSequence* sequence, const Operation& operation);
  void CheckAll();
  void CheckStats(const KvStats& stats);
  void CheckMemory(const KvStats& stats) const;
  void CheckTree() const;
  void CheckTreeOf(size_t ns) const;
  void DropEverything();
  void CheckNothingLeaked();
  void NoteLosses();
  void SetTime(const Operation& operation);
  void Refuse(const Operation& operation);
  void FlipByte(const Operation& operation);
  Text MakeText(SplitMix64& random);
  void Remember(std::span<const TokenId> tokens);
  template <typename... Args>
  void Trace(fmt::format_string<Args...> text, Args&&... args) const {
    if (options_.is_traced) PrintTrace(fmt::format(text, std::forward<Args>(args)...));
  }
  static void PrintTrace(const std::string& line);

  // check_lookups.cc
  LiveLease* Lookup(const Operation& operation);
  void ReadLease(LiveLease& lease);
  void CheckLease(LiveLease& lease);
  void CheckHit(const LiveLease& lease) const;
  void CheckNothingMissed(const LiveLease& lease) const;
  void CheckMisses(const LiveLease& lease) const;
  void CheckMiss(const LiveLease& lease, const Miss& miss) const;
  void CheckProducer(const LiveLease& lease) const;
  size_t PinnedLength(const Text& prompt) const;
  void Explain(const Operation& operation);
  void KeepSpan(const Operation& operation);
  void DropCached(const Operation& operation);
  void StartLoad(const Operation& operation);
  void Poll(const Operation& operation);
  void Install(const Operation& operation);
  void TierFault(const Operation& operation);
  void Export(const Operation& operation);
  void Import(const Operation& operation);
  void DropLease(LiveLease* lease);

  // check_quotas.cc
  static std::string AccountOf(size_t ns);
  std::string ChargedTo(size_t ns) const;
  void SetQuotas(const Operation& operation);
  std::map<std::string, NamespaceUsage> Usage() const;  // by account
  Quota QuotaOf(const std::string& account) const;
  void CheckShares();
  void CheckFloors(size_t wanting_ns) const;
  size_t RoomBefore(size_t ns) const;
  KvStats StatsBefore();

  // check_sequences.cc
  LiveSequence* Admit(LiveLease* lease, const Operation& operation);
  void CheckAdmitted(const LiveLease& lease, const LiveSequence& sequence, bool is_resume,
                     const KvStats& before) const;
  void CheckSplit(const LiveLease& lease, const PromptSplit& split) const;
  void Request(const Operation& operation);
  void Reserve(LiveSequence* sequence, size_t num_tokens);
  bool Append(LiveSequence* sequence, size_t num_tokens, uint64_t seed);
  std::vector<TokenId> NextTokens(const NaiveSequence& model, size_t num_tokens,
                                  SplitMix64& random) const;
  void Write(const Operation& operation);
  void Commit(LiveSequence* sequence, size_t num_tokens);
  void NoteViolation();
  size_t NumViolationsDue(const LiveSequence& sequence, size_t num_tokens) const;
  void AddPublished(const LiveSequence& sequence, size_t from, bool is_sure);
  void Truncate(const Operation& operation);
  void Fork(const Operation& operation);
  void Release(LiveSequence* sequence);
  void RequireRoomWasShort(size_t ns, size_t num_blocks, size_t num_refused) const;
  void RequireSameMemory(const KvStats& before) const;

  // check_waiters.cc
  void Wait(const Operation& operation);
  void Retry(const Operation& operation);
  void TakeEvents();
  void CheckEvents(std::span<const Event> events);
  void CheckNobodySleeps() const;
  void CheckPriorities() const;
  bool MayProvide(const LiveSequence& sequence, const Text& prompt) const;
  bool IsTakenOver(const Text& prompt, size_t end) const;
  bool IsAwaited(const Text& prompt, size_t end) const;
  size_t ProducedEnd(const LiveSequence& sequence, const Text& prompt) const;
  const LiveSequence* FindSequence(SequenceId id) const;

  size_t block_tokens() const { return setup_.block_tokens(); }
  // In which [begin, end) lies, that of `begin` included where it is not at a block's start.
  size_t NumBlocks(size_t begin, size_t end) const {
    return (end + block_tokens() - 1) / block_tokens() - begin / block_tokens();
  }
  size_t RoundDown(size_t num_tokens) const { return num_tokens - num_tokens % block_tokens(); }

  const CacheSetup& setup_;
  const CheckerOptions options_;
  CheckedStore store_;
  std::optional<MemoryTier> tier_;
  std::unique_ptr<KvCache> cache_;
  std::vector<NamespaceId> namespaces_;
  bool is_single_ = true;           // one group
  bool is_row_independent_ = true;  // all groups

  NaiveIndex index_;
  SaltsOfRows salts_;
  List<LiveLease> leases_;
  List<LiveSequence> sequences_;
  List<LiveWaiter> waiters_;
  List<ExportedText> exports_;
  std::vector<std::vector<TokenId>> corpus_;  // texts to draw prompts from

  std::map<std::string, Quota> quotas_;                 // by account
  std::map<std::string, NamespaceUsage> usage_before_;  // the call that wants memory
  std::map<std::string, NamespaceUsage> last_usage_;    // at the end of the last step
  KvStats at_rest_;                                     // when nothing is cached or held
  KvStats last_;                                        // at the end of the last step
  uint64_t num_steps_ = 0;
  uint64_t num_arrivals_ = 0;
  uint64_t num_take_overs_ = 0;  // told
  int64_t now_us_ = 0;
  bool is_mutated_ = false;  // a mutation that happens once has happened
};

uint64_t NumEvicted(const KvStats& stats);
std::string ToText(std::span<const TokenId> tokens);

}  // namespace kvern::kv::model_check
