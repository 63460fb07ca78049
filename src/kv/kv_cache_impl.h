// What is behind the handles of kvern/kv.h. Shared by kv_cache.cc (lookups and admission),
// sequence.cc (steps), residency.cc (tiers, export and import) and kv_report.cc.
//
// The writer works without a lock on what only it touches: pool, tables, handles. What Explain()
// and Tree() read from other threads, the prefix cache and who is in flight, it changes under
// `mutex`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "kv/block_pool.h"
#include "kv/block_table.h"
#include "kv/counters.h"
#include "kv/fingerprint.h"
#include "kv/in_flight.h"
#include "kv/prefix_cache.h"
#include "kv/record.h"
#include "kv/state_table.h"
#include "kv/tier_io.h"
#include "kvern/kv.h"

namespace kvern::kv {

using WriterLock = std::unique_lock<std::shared_mutex>;
using ReaderLock = std::shared_lock<std::shared_mutex>;

// One block of one group that a lease loads.
struct BlockLoad {
  size_t block = 0;  // of the lease's tier blocks
  GroupId group{};
  LoadState state = LoadState::kPending;
  std::optional<LoadId> id;       // until it was finished
  std::optional<BlockId> loaded;  // one reference
  std::string failure = {};
};

// Leaves the part of a miss from `position` on; false if there is none.
bool TrimMiss(Miss& miss, size_t position);

struct Lease::Impl {
  KvCache::Impl* cache;
  Prompt prompt;
  Node* node = nullptr;  // pinned; ends at num_blocks
  size_t num_blocks = 0;
  size_t num_partial = 0;
  // References of its own, by group: the block to copy rows from; window blocks from first_aux on;
  // the state at the end.
  std::vector<std::optional<BlockId>> partial;
  std::vector<std::vector<BlockId>> windows;
  std::vector<std::optional<BlockId>> states;
  std::vector<Miss> misses;
  std::optional<ProducerId> provisional;  // it loads, or is to take over from a producer

  // Where its tokens came from, over waits and loads.
  std::optional<size_t> first_ram;  // tokens of whole blocks that the first lookup found
  bool has_waited = false;
  size_t tier_tokens = 0;  // loaded

  std::vector<RecordKey> tier_keys;    // of the blocks after num_blocks that a tier has
  std::vector<BlockLoad> loads;        // once started
  std::vector<BlockPromise> promises;  // by group, for loads that have not arrived
  std::string tier_failure;            // why the last load ended early
  size_t tier_failed_end = 0;          // tokens up to where the tier had claimed to have records
};

struct Waiter::Impl {
  KvCache::Impl* cache;
  WaiterId id;
  Prompt prompt;
  size_t first_ram;
  size_t tier_tokens;
};

struct Sequence::Impl {
  using Table = std::variant<BlockTable, StateTable>;

  KvCache::Impl* cache;
  SequenceId id;
  NamespaceId ns;
  Retention retention = Retention::kNormal;
  std::optional<int64_t> ttl_us;
  int priority = 0;
  bool publish = true;
  Node* node = nullptr;  // pinned; ends at `published`
  size_t length = 0;
  size_t committed = 0;
  size_t published = 0;  // tokens, whole blocks
  std::vector<TokenId>
      unpublished;  // tokens of [published, length); not kept if it never publishes
  std::optional<ProducerId> producer;
  PromptSplit split;
  std::vector<Miss> misses;
  std::vector<Table> tables;  // by group

  Status Reserve(size_t num_tokens);
  Status Append(std::span<const TokenId> tokens);
  void Commit(size_t new_length);
  Status Truncate(size_t new_length);
  // Promises of all tables, all or none.
  Status Promise(const BlockCounts& wanted);
  BlockCounts BlocksNeeded(size_t num_tokens) const;
  // Of these, those that are not promised yet.
  BlockCounts NotPromised(const BlockCounts& wanted) const;
  void Release();

  BlockTable& blocks(size_t group) { return std::get<BlockTable>(tables[group]); }
  const BlockTable& blocks(size_t group) const { return std::get<BlockTable>(tables[group]); }

 private:
  Status Extend(size_t num_tokens);
  void PublishBlocks();
  std::vector<BlockSlot> SlotsOf(size_t first_block, size_t num_blocks) const;
  void Merge(const PrefixCache::Published& found);
  bool MergeBlock(const PrefixCache::Published& found, size_t index);
  void PublishTail();
  void Slide();
  void EndProduction();
};

struct KvCache::Impl {
  struct Namespace {
    Fingerprint fingerprint;
    NamespaceHash hash;
  };

  KvCacheOptions options;
  BlockStore* store;
  uint32_t block_tokens;
  Counters counters;
  BlockPool pool;
  PrefixCache prefixes;             // guarded by mutex for other threads
  InFlight in_flight;               // the same
  std::unique_ptr<TierIo> tier_io;  // null without a tier
  std::unordered_map<uint64_t, std::pair<Lease::Impl*, size_t>> loading;  // by LoadId
  std::vector<std::unique_ptr<Namespace>> namespaces;                     // the same
  std::map<std::string, NamespaceId> namespace_ids;                       // by canonical spelling
  std::map<std::string, OwnerId, std::less<>> accounts;                   // guarded by mutex
  std::map<OwnerId, Quota> quotas;                                        // the same
  uint32_t num_owners = 1;                          // the first has the library's own zero blocks
  std::vector<std::optional<BlockId>> zero_blocks;  // by group; full groups have none
  uint64_t last_sequence = 0;
  size_t num_handles = 0;
  mutable std::shared_mutex mutex;

  Impl(KvCacheOptions given, BlockStore* block_store);

  std::byte* ZeroAddress(size_t group) const;
  const GroupSpec& group(size_t index) const { return options.groups[index]; }
  size_t num_groups() const { return options.groups.size(); }
  const MacKey* mac_key() const { return options.mac_key ? &*options.mac_key : nullptr; }

  // Evicts what it must so that these can be reserved. Takes the lock if it must evict. Errors:
  // kOutOfMemory, and nothing was evicted.
  Status MakeRoom(NamespaceId ns, const BlockCounts& num_blocks);

  OwnerId OwnerOf(NamespaceId ns) const { return prefixes.OwnerOf(ns); }
  // A new one where the account has none, or no name.
  OwnerId OwnerOf(const std::string& account);

  // Finds and pins what the lease's prompt can use now. Under the lock.
  void Fill(Lease::Impl& lease);
  std::optional<InFlight::Offer> FindProducer(const Lease::Impl& lease) const;
  void FindOnTier(Lease::Impl& lease);
  // Keys of the whole blocks after a prefix that a tier has all of, up to the longest point at
  // which no window or state lacks. `num_window_blocks`: by group, at the end of the prefix.
  std::vector<RecordKey> KeysOnTier(const Prompt& prompt, size_t num_blocks, RecordKey parent,
                                    std::vector<size_t> num_window_blocks) const;
  size_t NumOnTier(NamespaceId ns, std::span<const TokenId> tokens, const Prefix& prefix) const;
  void MarkTierFailure(Lease::Impl& lease);
  void HoldAux(Lease::Impl& lease);
  // Drops what Fill() pinned.
  void Empty(Lease::Impl& lease);
  void DropLoads(Lease::Impl& lease);
  void EndLease(Lease::Impl& lease);

  // Gives up the rows that a lease would copy, where that leaves room for the rest.
  // Errors: `refusal`, and nothing has changed.
  Status PromiseWithoutPartial(Lease::Impl& lease, Sequence::Impl& sequence, BlockCounts needed,
                               Status refusal);
  Result<std::unique_ptr<Sequence::Impl>> Begin(Lease::Impl& lease, const AdmitOptions& admit);
  void Announce(Lease::Impl& lease, Sequence::Impl& sequence);
  PromptSplit SplitOf(const Lease::Impl& lease) const;

  // Of one block, by group: whether what both have is the same. Counts duplicates.
  bool HaveSameBytes(std::span<const BlockSlot> theirs, std::span<const BlockSlot> own);

  // Takes the blocks of a pinned node from `num_blocks` of the text on out of the tree, and moves
  // the pin to what comes before them.
  Node* WithdrawDiffering(Node* node, size_t num_blocks);

  // Tiers, export and import: residency.cc.
  RecordKey KeyAt(const Node& node) const;  // of the text up to its end
  std::vector<RecordKey> KeysAfter(const Node& node, NamespaceId ns,
                                   std::span<const TokenId> tokens) const;
  RecordIdentity IdentityOf(NamespaceId ns, GroupId id, const RecordKey& parent, size_t position,
                            std::span<const TokenId> tokens) const;
  // Writes blocks of a node to the tier, as far as it has buffers.
  void StoreBlocks(const Node& node, size_t first_block, size_t num_blocks);
  // Of a lease whose loads end at its last tier block: whether that needs this one.
  bool IsNeeded(const Lease::Impl& lease, size_t block, size_t index) const;
  Status StartLoad(Lease::Impl& lease);
  void PollTier();
  void FinishLoad(Lease::Impl& lease, BlockLoad& load);
  Error Refused(const RecordError& error);  // counts it
  // The bytes of a record that proved what it is, in a new block from a promise.
  Result<BlockId> Unpack(const RecordIdentity& identity, std::span<const std::byte> record,
                         BlockPromise& promise);
  size_t Install(Lease::Impl& lease);
  // Puts blocks from outside after `node`, which the caller pins; the caller's references end.
  // Moves the pin to the new end. Returns the blocks that are in the tree now.
  size_t PublishLoaded(Node*& node, PrefixCache::Publication publication);
  Result<size_t> Import(NamespaceId ns, std::span<const std::byte> records);
  struct Importing;
  Status ImportRecord(Importing& importing, const RecordView& record);
  Status ImportBlock(Importing& importing);
};

}  // namespace kvern::kv
