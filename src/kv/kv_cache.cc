// KvCache: lookups, admission and waiting.
#include <algorithm>
#include <utility>

#include "base/result.h"
#include "kv/kv_cache_impl.h"

namespace kvern::kv {
namespace {

double TransformerCost(size_t position, size_t num_tokens) {
  const auto tokens = static_cast<double>(num_tokens);
  return tokens * (1024 + static_cast<double>(position) + tokens / 2);
}

Status CheckGroup(const GroupSpec& group, size_t index, uint32_t block_tokens) {
  const auto fail = [&](std::string_view what) {
    return Errorf(ErrorCode::kInvalidArgument, "KvCacheOptions::groups[{}]: {}", index, what);
  };
  if (group.block_bytes == 0 || group.block_bytes % kBlockAlignment != 0) {
    return fail("block_bytes must be a positive multiple of 64");
  }
  if (group.block_tokens == 0 || group.block_tokens != block_tokens) {
    return fail("block_tokens must be positive and the same in all groups");
  }
  if (group.kind == GroupKind::kWindow && group.window == 0) {
    return fail("a window group needs a window of at least one token");
  }
  return {};
}

// What the library's 32-bit numbers can count.
Status CheckSizes(const KvCacheOptions& options) {
  constexpr size_t kMaxBlocks = size_t{1} << 31;
  constexpr size_t kMaxSlabBytes = size_t{1} << 40;
  size_t smallest = SIZE_MAX;
  for (const GroupSpec& group : options.groups) smallest = std::min(smallest, group.block_bytes);
  if (options.budget_bytes / smallest > kMaxBlocks) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCacheOptions::budget_bytes: {} are more than {} blocks of {} bytes",
                  options.budget_bytes, kMaxBlocks, smallest);
  }
  if (options.min_slab_bytes == 0 || options.min_slab_bytes > kMaxSlabBytes) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCacheOptions::min_slab_bytes: {} is not in 1 … {}", options.min_slab_bytes,
                  kMaxSlabBytes);
  }
  if (options.history_blocks > kMaxBlocks) {
    return Errorf(ErrorCode::kInvalidArgument, "KvCacheOptions::history_blocks: {} is over {}",
                  options.history_blocks, kMaxBlocks);
  }
  return {};
}

Status CheckOptions(const KvCacheOptions& options) {
  if (options.groups.empty() || options.groups.size() > kMaxGroups) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCacheOptions::groups: {} given, 1 to {} are possible", options.groups.size(),
                  kMaxGroups);
  }
  bool has_full = false;
  for (size_t i = 0; i < options.groups.size(); ++i) {
    KVERN_RETURN_IF_ERROR(CheckGroup(options.groups[i], i, options.groups[0].block_tokens));
    has_full |= options.groups[i].kind == GroupKind::kFull;
  }
  if (!has_full) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCacheOptions::groups: a full-attention group is needed to share prefixes by");
  }
  KVERN_RETURN_IF_ERROR(CheckSizes(options));
  if (options.tier != nullptr && options.tier_io_blocks == 0) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCacheOptions::tier_io_blocks: 0, but a tier needs at least one");
  }
  return FindPolicy(options.eviction).ok() ? Status() : FindPolicy(options.eviction).error();
}

PrefixCache::Options PrefixOptions(const KvCacheOptions& options) {
  return {.block_tokens = options.groups[0].block_tokens,
          .policy = *FindPolicy(options.eviction),
          .history_blocks = options.history_blocks,
          .span_bytes_per_tenant = options.span_bytes_per_tenant,
          .keep_keys = options.tier != nullptr,
          .recompute_cost = options.recompute_cost};
}

size_t LargestRecord(const KvCacheOptions& options) {
  constexpr size_t kMaxFingerprintBytes = 64 << 10;
  constexpr size_t kMaxHeaderBytes = 1024;
  size_t largest = 0;
  for (const GroupSpec& group : options.groups) {
    const size_t token_bytes = group.block_tokens * sizeof(TokenId);
    largest = std::max(largest, group.block_bytes + token_bytes);
  }
  return largest + kMaxFingerprintBytes + kMaxHeaderBytes;
}

// Typed and length-prefixed, so that no two namespaces are spelled alike.
std::string Spell(const Fingerprint& fingerprint, const NamespaceSpec& spec) {
  std::string text = "kvern-namespace";
  const auto add = [&](char type, std::string_view value) {
    text += type;
    for (uint64_t size = value.size(), i = 0; i < 8; ++i)
      text += static_cast<char>(size >> (8 * i));
    text += value;
  };
  add('f', {reinterpret_cast<const char*>(fingerprint.digest().data()), sizeof(Digest)});
  add('a', spec.adapter);
  add('t', spec.tenant);
  return text;
}

}  // namespace

// ---- The cache

KvCache::Impl::Impl(KvCacheOptions given, BlockStore* block_store)
    : options(std::move(given)),
      store(block_store),
      block_tokens(options.groups[0].block_tokens),
      pool(store, options.budget_bytes, options.groups, options.min_slab_bytes),
      prefixes(PrefixOptions(options), &pool, &counters),
      in_flight(block_tokens),
      zero_blocks(options.groups.size()) {}

KvCache::KvCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

KvCache::~KvCache() {
  CHECK(impl_->num_handles == 0);
  impl_->tier_io.reset();
  for (const auto& block : impl_->zero_blocks) {
    if (block) impl_->pool.Release(*block);
  }
}

Result<std::unique_ptr<KvCache>> KvCache::Make(KvCacheOptions options, BlockStore* store) {
  KVERN_RETURN_IF_ERROR(CheckOptions(options));
  if (!options.recompute_cost) options.recompute_cost = TransformerCost;
  std::unique_ptr<KvCache> cache(new KvCache(std::make_unique<Impl>(std::move(options), store)));
  Impl& impl = *cache->impl_;
  for (size_t i = 0; i < impl.num_groups(); ++i) {
    if (impl.group(i).kind == GroupKind::kFull) continue;
    KVERN_ASSIGN_OR_RETURN(impl.zero_blocks[i], impl.pool.Allocate(static_cast<GroupId>(i)));
  }
  if (impl.options.tier != nullptr) {
    KVERN_ASSIGN_OR_RETURN(impl.tier_io,
                           TierIo::Create(impl.options.tier, impl.options.tier_io_blocks,
                                          LargestRecord(impl.options)));
  }
  return cache;
}

void KvCache::SetTime(int64_t now_us) {
  const WriterLock lock(impl_->mutex);
  impl_->prefixes.SetTime(now_us);
}

Result<NamespaceId> KvCache::OpenNamespace(const NamespaceSpec& spec) {
  std::vector<FingerprintField> fields = spec.fingerprint;
  for (size_t i = 0; i < impl_->num_groups(); ++i) {
    fields.push_back(GroupField(static_cast<GroupId>(i), impl_->group(i)));
  }
  KVERN_ASSIGN_OR_RETURN(Fingerprint fingerprint,
                         Fingerprint::Make(spec.numerics_version, std::move(fields)));
  const std::string spelling = Spell(fingerprint, spec);
  const auto known = impl_->namespace_ids.find(spelling);
  if (known != impl_->namespace_ids.end()) return known->second;

  const WriterLock lock(impl_->mutex);
  const std::string& payer = spec.account.empty() ? spec.tenant : spec.account;
  const NamespaceId ns = impl_->prefixes.AddNamespace(payer, impl_->OwnerOf(spec.account));
  const NamespaceHash hash = NamespaceHashOf(std::as_bytes(std::span(spelling)));
  impl_->namespaces.push_back(
      std::make_unique<Impl::Namespace>(Impl::Namespace{std::move(fingerprint), hash}));
  impl_->namespace_ids.emplace(spelling, ns);
  return ns;
}

std::byte* KvCache::Impl::ZeroAddress(size_t group) const {
  return zero_blocks[group] ? pool.Address(*zero_blocks[group]) : nullptr;
}

size_t KvCache::DropCached(std::optional<NamespaceId> ns) {
  const WriterLock lock(impl_->mutex);
  return impl_->prefixes.DropCached(ns);
}

SpanGrant KvCache::KeepSpan(NamespaceId ns, std::span<const TokenId> tokens, int64_t ttl_us) {
  const WriterLock lock(impl_->mutex);
  return impl_->prefixes.KeepSpan(ns, tokens, ttl_us);
}

std::vector<Event> KvCache::TakeEvents() {
  const WriterLock lock(impl_->mutex);
  return impl_->in_flight.TakeEvents();
}

// ---- Leases

Lease::Lease(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) { ++impl_->cache->num_handles; }
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Lease::~Lease() {
  if (impl_ == nullptr) return;
  const WriterLock lock(impl_->cache->mutex);
  impl_->cache->EndLease(*impl_);
  --impl_->cache->num_handles;
}

size_t Lease::num_tokens() const { return impl_->prompt.tokens.size(); }
size_t Lease::num_ram_tokens() const { return impl_->num_blocks * impl_->cache->block_tokens; }
size_t Lease::num_partial_tokens() const { return impl_->num_partial; }
size_t Lease::num_tier_tokens() const {
  return impl_->tier_keys.size() * impl_->cache->block_tokens;
}
std::optional<Production> Lease::producer() const {
  const auto offer = impl_->cache->FindProducer(*impl_);
  if (!offer) return std::nullopt;
  return offer->production;
}
std::span<const Miss> Lease::misses() const { return impl_->misses; }

Lease KvCache::Lookup(const Prompt& prompt) {
  CHECK(!prompt.tokens.empty());
  auto lease = std::make_unique<Lease::Impl>();
  lease->cache = impl_.get();
  lease->prompt = prompt;
  const WriterLock lock(impl_->mutex);
  impl_->Fill(*lease);
  impl_->prefixes.Use(lease->node, prompt.retention, prompt.ttl_us);
  return Lease(std::move(lease));
}

void KvCache::Impl::Fill(Lease::Impl& lease) {
  const Prompt& prompt = lease.prompt;
  const size_t size = prompt.tokens.size();
  lease.partial.assign(num_groups(), std::nullopt);
  Prefix prefix{.match = {.node = prefixes.tree().root(RootOf(prompt.ns))}};
  if (prompt.use_cache) {
    prefix = prefixes.Find(prompt.ns, prompt.tokens, prompt.max_hit);
    lease.misses = prefixes.Explain(prompt.ns, prompt.tokens, prefix);
  } else {
    lease.misses = {{.reason = MissReason::kPolicyOff, .position = 0, .num_tokens = size}};
  }
  if (prefix.num_partial > 0) {
    for (size_t i = 0; i < num_groups(); ++i) {
      const BlockSlot slot = prefixes.tree().Slot(prefix.partial_node, prefix.partial_block, i);
      if (!slot) continue;
      lease.partial[i] = *slot;
      pool.Retain(*slot);
    }
  }
  lease.num_blocks = prefix.num_blocks;
  lease.num_partial = prefix.num_partial;
  lease.node = prefixes.PinPrefix(prefix.match, prefix.num_blocks);
  HoldAux(lease);
  if (!lease.tier_failure.empty()) MarkTierFailure(lease);
  if (!lease.first_ram) lease.first_ram = lease.num_blocks * block_tokens;
  if (prompt.use_cache) FindOnTier(lease);
}

std::optional<InFlight::Offer> KvCache::Impl::FindProducer(const Lease::Impl& lease) const {
  if (!lease.prompt.use_cache) return std::nullopt;
  const size_t held = lease.num_blocks * block_tokens + lease.num_partial;
  return in_flight.Find(lease.prompt.ns, lease.prompt.tokens, held, lease.provisional);
}

// What a tier claimed to have is a miss of the tier's; what comes after it keeps its own reason.
void KvCache::Impl::MarkTierFailure(Lease::Impl& lease) {
  const size_t begin = lease.num_blocks * block_tokens + lease.num_partial;
  if (begin >= lease.tier_failed_end) return;
  std::vector<Miss> misses = {{.reason = MissReason::kTierFailed,
                               .position = begin,
                               .num_tokens = lease.tier_failed_end - begin,
                               .cause = lease.tier_failure}};
  for (Miss& miss : lease.misses) {
    if (TrimMiss(miss, lease.tier_failed_end)) misses.push_back(std::move(miss));
  }
  lease.misses = std::move(misses);
}

// References to the window and state blocks that a sequence starting here needs.
void KvCache::Impl::HoldAux(Lease::Impl& lease) {
  lease.windows.assign(num_groups(), {});
  lease.states.assign(num_groups(), std::nullopt);
  const size_t length = lease.num_blocks * block_tokens + lease.num_partial;
  if (length == 0) return;
  for (size_t i = 0; i < num_groups(); ++i) {
    const GroupSpec& spec = group(i);
    if (spec.kind == GroupKind::kState) {
      const bool is_tail = lease.num_partial > 0;
      lease.states[i] = is_tail
                            ? std::exchange(lease.partial[i], std::nullopt)
                            : *prefixes.tree().Slot(lease.node, lease.node->num_blocks() - 1, i);
      if (!is_tail) pool.Retain(*lease.states[i]);
    } else if (spec.kind == GroupKind::kWindow) {
      const size_t first_seen = length + 1 - std::min<size_t>(length + 1, spec.window);
      for (size_t block = first_seen / block_tokens; block < lease.num_blocks; ++block) {
        const Node* const node = prefixes.NodeWith(lease.node, block);
        const size_t in_node = block - node->position / block_tokens;
        lease.windows[i].push_back(*node->slots[in_node * num_groups() + i]);
      }
      pool.Retain(lease.windows[i]);
    }
  }
}

void KvCache::Impl::Empty(Lease::Impl& lease) {
  for (size_t i = 0; i < num_groups(); ++i) {
    pool.Release(lease.windows[i]);
    if (lease.partial[i]) pool.Release(*lease.partial[i]);
    if (lease.states[i]) pool.Release(*lease.states[i]);
  }
  lease.windows.assign(num_groups(), {});
  lease.partial.assign(num_groups(), std::nullopt);
  lease.states.assign(num_groups(), std::nullopt);
  if (lease.node != nullptr) prefixes.Unpin(std::exchange(lease.node, nullptr));
}

void KvCache::Impl::EndLease(Lease::Impl& lease) {
  DropLoads(lease);
  Empty(lease);
  if (lease.provisional) in_flight.Withdraw(*std::exchange(lease.provisional, std::nullopt));
}

// ---- Waiting

Waiter::Waiter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) { ++impl_->cache->num_handles; }
Waiter::Waiter(Waiter&&) noexcept = default;
Waiter& Waiter::operator=(Waiter&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Waiter::~Waiter() {
  if (impl_ == nullptr) return;
  InFlight& in_flight = impl_->cache->in_flight;
  const WriterLock lock(impl_->cache->mutex);
  if (const auto provisional = in_flight.EndWait(impl_->id)) in_flight.Withdraw(*provisional);
  --impl_->cache->num_handles;
}

WaiterId Waiter::id() const { return impl_->id; }
std::optional<SequenceId> Waiter::producer() const {
  return impl_->cache->in_flight.ProducerOf(impl_->id);
}

Result<Waiter> KvCache::Wait(Lease& lease, int priority) {
  Lease::Impl& impl = *lease.impl_;
  const WriterLock lock(impl_->mutex);
  const auto offer = impl_->FindProducer(impl);
  if (!offer) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "KvCache::Wait: nobody produces what this lease lacks: admit it instead");
  }
  auto waiter = std::make_unique<Waiter::Impl>();
  waiter->cache = impl_.get();
  waiter->prompt = impl.prompt;
  waiter->first_ram = *impl.first_ram;
  waiter->tier_tokens = impl.tier_tokens;
  waiter->id = impl_->in_flight.Wait(*offer, impl.prompt.tokens, priority);
  impl_->EndLease(impl);
  --impl_->num_handles;
  lease.impl_.reset();
  return Waiter(std::move(waiter));
}

Lease KvCache::Retry(Waiter waiter) {
  Waiter::Impl& waited = *waiter.impl_;
  auto lease = std::make_unique<Lease::Impl>();
  lease->cache = impl_.get();
  lease->prompt = waited.prompt;
  lease->first_ram = waited.first_ram;
  lease->tier_tokens = waited.tier_tokens;
  lease->has_waited = true;
  const WriterLock lock(impl_->mutex);
  impl_->Fill(*lease);  // before the producer may slide past it
  lease->provisional = impl_->in_flight.EndWait(waited.id);
  impl_->prefixes.Use(lease->node, waited.prompt.retention, waited.prompt.ttl_us);
  waiter.impl_.reset();
  --impl_->num_handles;
  return Lease(std::move(lease));
}

// ---- Admission

Result<Sequence> KvCache::Admit(Lease& lease, const AdmitOptions& options) {
  KVERN_ASSIGN_OR_RETURN(auto sequence, impl_->Begin(*lease.impl_, options));
  --impl_->num_handles;
  lease.impl_.reset();
  return Sequence(std::move(sequence));
}

Result<std::unique_ptr<Sequence::Impl>> KvCache::Impl::Begin(Lease::Impl& lease,
                                                             const AdmitOptions& admit) {
  size_t length = lease.num_blocks * block_tokens + lease.num_partial;
  auto sequence = std::make_unique<Sequence::Impl>();
  sequence->cache = this;
  sequence->ns = lease.prompt.ns;
  const OwnerId owner = OwnerOf(lease.prompt.ns);
  BlockCounts needed = {};
  for (size_t i = 0; i < num_groups(); ++i) {
    const auto id = static_cast<GroupId>(i);
    if (group(i).kind == GroupKind::kState) {
      sequence->tables.emplace_back(StateTable(&pool, id, owner, ZeroAddress(i)));
      needed[i] = std::get<StateTable>(sequence->tables[i]).BlocksNeeded(admit.reserve_tokens);
    } else {
      sequence->tables.emplace_back(BlockTable(&pool, id, owner, ZeroAddress(i)));
      const size_t end = length + admit.reserve_tokens;
      needed[i] = (end + block_tokens - 1) / block_tokens - lease.num_blocks;
    }
  }
  Status status = sequence->Promise(needed);
  if (!status.ok() && lease.num_partial > 0 && num_groups() == 1) {
    const size_t end = length - lease.num_partial + admit.reserve_tokens;
    needed[0] = (end + block_tokens - 1) / block_tokens - lease.num_blocks;
    status = PromiseWithoutPartial(lease, *sequence, needed, std::move(status));
    length = lease.num_blocks * block_tokens + lease.num_partial;
  }
  if (!status.ok()) return status.error();

  const WriterLock lock(mutex);
  for (size_t i = 0; i < num_groups(); ++i) {
    if (group(i).kind == GroupKind::kState) {
      if (!lease.states[i]) continue;
      std::get<StateTable>(sequence->tables[i]).Adopt(length, *lease.states[i]);
      lease.states[i].reset();
      continue;
    }
    BlockTable& table = sequence->blocks(i);
    std::vector<BlockId> blocks(lease.num_blocks);
    const bool is_full = group(i).kind == GroupKind::kFull;
    const size_t first_held = is_full ? 0 : lease.num_blocks - lease.windows[i].size();
    if (is_full) {
      prefixes.CopyPath(lease.node, static_cast<GroupId>(i), blocks);
    } else {
      std::ranges::copy(lease.windows[i], blocks.begin() + static_cast<ptrdiff_t>(first_held));
      lease.windows[i].clear();
    }
    table.Adopt(blocks, first_held, is_full);
    if (lease.num_partial > 0) table.AdoptRows(lease.partial[i], lease.num_partial);
    counters.rows_copied.Add(lease.num_partial);
  }
  sequence->id = SequenceId{++last_sequence};
  sequence->retention = lease.prompt.retention;
  sequence->ttl_us = lease.prompt.ttl_us;
  sequence->priority = admit.priority;
  sequence->publish = admit.publish && lease.prompt.use_cache;
  sequence->length = sequence->committed = length;
  sequence->published = lease.num_blocks * block_tokens;
  if (sequence->publish) {
    const auto tail = lease.prompt.tokens.subspan(sequence->published, lease.num_partial);
    sequence->unpublished.assign(tail.begin(), tail.end());
  }
  sequence->node = std::exchange(lease.node, nullptr);
  sequence->split = SplitOf(lease);
  sequence->misses = std::move(lease.misses);
  (admit.is_resume ? counters.resumes : counters.prompts).Add(sequence->split);
  Announce(lease, *sequence);
  EndLease(lease);
  return sequence;
}

// The block to copy from may be the very one that is in the way.
Status KvCache::Impl::PromiseWithoutPartial(Lease::Impl& lease, Sequence::Impl& sequence,
                                            BlockCounts needed, Status refusal) {
  const BlockId source = *lease.partial[0];
  BlockCounts others = needed;
  if (pool.num_references(source) == 1) others[0] -= std::min<size_t>(others[0], 1);
  if (!prefixes.CouldMakeRoom(OwnerOf(sequence.ns), others)) return refusal;
  pool.Release(source);
  lease.partial[0].reset();
  const size_t begin = lease.num_blocks * block_tokens;
  const size_t end = begin + std::exchange(lease.num_partial, 0);
  std::vector<Miss> misses = {{.reason = MissReason::kEvicted,
                               .position = begin,
                               .num_tokens = end - begin,
                               .when_us = prefixes.now_us(),
                               .cause = "its own prompt"}};
  for (Miss& miss : lease.misses) {
    if (TrimMiss(miss, end)) misses.push_back(std::move(miss));
  }
  lease.misses = std::move(misses);
  return sequence.Promise(needed);
}

void KvCache::Impl::Announce(Lease::Impl& lease, Sequence::Impl& sequence) {
  const size_t end = lease.prompt.tokens.size() / block_tokens * block_tokens;
  if (!sequence.publish || end <= sequence.published) return;  // EndLease() withdraws
  sequence.producer = in_flight.Announce({.ns = sequence.ns,
                                          .sequence = sequence.id,
                                          .tokens = lease.prompt.tokens,
                                          .published = sequence.published,
                                          .priority = sequence.priority},
                                         std::exchange(lease.provisional, std::nullopt));
}

PromptSplit KvCache::Impl::SplitOf(const Lease::Impl& lease) const {
  PromptSplit split;
  const size_t held = lease.num_blocks * block_tokens;
  const size_t first = std::min(*lease.first_ram, held);
  split.tier = std::min(lease.tier_tokens, held - first);
  split.in_flight = lease.has_waited ? held - first - split.tier : 0;
  split.ram = held - split.tier - split.in_flight;
  split.partial = lease.num_partial;
  for (const Miss& miss : lease.misses) {
    split.miss[static_cast<size_t>(miss.reason)] += miss.num_tokens;
  }
  // A full hit still needs the logits of its last token.
  if (held + lease.num_partial == lease.prompt.tokens.size()) {
    size_t* const last = split.partial > 0     ? &split.partial
                         : split.in_flight > 0 ? &split.in_flight
                         : split.tier > 0      ? &split.tier
                                               : &split.ram;
    --*last;
  }
  return split;
}

// ---- Sequences: their handles

Sequence::Sequence(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  ++impl_->cache->num_handles;
}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

Sequence::~Sequence() {
  if (impl_ == nullptr) return;
  impl_->Release();
  --impl_->cache->num_handles;
}

SequenceId Sequence::id() const { return impl_->id; }
size_t Sequence::length() const { return impl_->length; }
size_t Sequence::committed() const { return impl_->committed; }
size_t Sequence::num_published() const { return impl_->publish ? impl_->published : 0; }
const PromptSplit& Sequence::split() const { return impl_->split; }
std::span<const Miss> Sequence::misses() const { return impl_->misses; }
int Sequence::effective_priority() const {
  if (!impl_->producer) return impl_->priority;
  return impl_->cache->in_flight.EffectivePriority(*impl_->producer);
}

size_t Sequence::BytesNeeded(size_t num_tokens) const {
  const BlockCounts needed = impl_->NotPromised(impl_->BlocksNeeded(num_tokens));
  return impl_->cache->prefixes.BytesOf(needed);
}
Status Sequence::Reserve(size_t num_tokens) { return impl_->Reserve(num_tokens); }
Status Sequence::Append(std::span<const TokenId> tokens) { return impl_->Append(tokens); }
void Sequence::Commit(size_t length) { impl_->Commit(length); }
Status Sequence::Truncate(size_t length) { return impl_->Truncate(length); }

PagedView Sequence::View(GroupId group) const {
  return std::visit([](const auto& table) { return table.View(); }, impl_->tables[Index(group)]);
}

Sequence Sequence::Fork() {
  KvCache::Impl& cache = *impl_->cache;
  auto fork = std::make_unique<Impl>();
  const WriterLock lock(cache.mutex);
  fork->cache = &cache;
  fork->id = SequenceId{++cache.last_sequence};
  fork->ns = impl_->ns;
  fork->retention = impl_->retention;
  fork->ttl_us = impl_->ttl_us;
  fork->priority = impl_->priority;
  fork->publish = impl_->publish;
  fork->node = impl_->node;
  fork->length = impl_->length;
  fork->committed = impl_->committed;
  fork->published = impl_->published;
  fork->unpublished = impl_->unpublished;
  cache.prefixes.Pin(fork->node);
  fork->tables.reserve(impl_->tables.size());
  for (Impl::Table& table : impl_->tables) {
    std::visit([&](auto& original) { fork->tables.emplace_back(original.Fork()); }, table);
  }
  return Sequence(std::move(fork));
}

}  // namespace kvern::kv
