#include "kv/model_check/checker.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "base/check.h"
#include "base/result.h"

namespace kvern::kv::model_check {
namespace {

constexpr size_t kMaxCorpus = 12;

StoreFault FaultOf(Mutation mutation) {
  if (mutation == Mutation::kDoesNotZero) return StoreFault::kDoesNotZero;
  if (mutation == Mutation::kCopiesTooLittle) return StoreFault::kCopiesOneRowLess;
  return StoreFault::kNone;
}

KvCacheOptions MakeOptions(const CacheSetup& setup, Tier* tier) {
  KvCacheOptions options;
  options.groups = setup.groups;
  options.budget_bytes = setup.budget_bytes;
  options.min_slab_bytes = setup.min_slab_bytes;
  options.eviction = std::string(setup.eviction);
  options.history_blocks = setup.history_blocks;
  options.span_bytes_per_tenant = setup.span_bytes;
  options.tier = tier;
  options.tier_io_blocks = 6;
  return options;
}

NamespaceSpec SpecOf(size_t ns, std::string account) {
  NamespaceSpec spec;
  spec.numerics_version = 1;
  // Each differs from the first in another field.
  if (ns == 1) spec.tenant = "b";
  if (ns == 2) spec.adapter = "b";
  if (ns == 3) spec.fingerprint.push_back({.name = "rope", .value = uint64_t{1}});
  spec.account = std::move(account);
  return spec;
}

}  // namespace

uint64_t NumEvicted(const KvStats& stats) {
  uint64_t sum = 0;
  for (const uint64_t count : stats.evicted_blocks) sum += count;
  return sum;
}

std::string ToText(std::span<const TokenId> tokens) {
  std::string text = "[";
  for (const TokenId token : tokens) text += fmt::format("{}", static_cast<uint32_t>(token));
  return text + "]";
}

Checker::Checker(const CacheSetup& setup, const CheckerOptions& options)
    : setup_(setup),
      options_(options),
      store_(setup.groups, FaultOf(options.mutation)),
      is_single_(setup.groups.size() == 1),
      index_(setup) {
  for (const GroupSpec& group : setup.groups) is_row_independent_ &= group.row_independent;
  if (setup.has_tier) {
    MemoryTierOptions tier_options;
    tier_options.max_latency_polls = 4;
    tier_options.reorder = true;
    tier_.emplace(tier_options);
  }
  auto cache = KvCache::Make(MakeOptions(setup, tier_ ? &*tier_ : nullptr), &store_);
  if (!cache.ok()) Fail("Make: " + cache.error().message);
  cache_ = std::move(*cache);
  for (size_t i = 0; i < setup.num_namespaces; ++i) {
    const bool is_mixed = options.mutation == Mutation::kMixesNamespaces;
    const std::string account = setup.has_quotas ? AccountOf(i) : "";
    const Result<NamespaceId> ns = cache_->OpenNamespace(SpecOf(is_mixed ? 0 : i, account));
    if (!ns.ok()) Fail("OpenNamespace: " + ns.error().message);
    namespaces_.push_back(*ns);
  }
  at_rest_ = last_ = cache_->stats();
}

Checker::~Checker() = default;

void Checker::Do(const Operation& operation) {
  ++num_steps_;
  if (options_.is_traced) PrintTrace(fmt::format("{}: {}", num_steps_, ToText(operation)));
  Dispatch(operation);
  if (options_.mutation == Mutation::kFlipsByte && num_steps_ % 64 == 0) FlipByte(operation);
  CheckStats(cache_->stats());
  for (const auto& sequence : sequences_) sequence->model.CheckViews(sequence->real);
  if (num_steps_ % options_.full_check_every == 0) CheckAll();
}

void Checker::Finish() {
  CheckAll();
  DropEverything();
  cache_.reset();
}

void Checker::Dispatch(const Operation& operation) {
  LiveSequence* const sequence = Pick(sequences_, operation.object);
  const size_t most = 2 * block_tokens();
  switch (operation.action) {
    case Action::kLookup:
      Lookup(operation);
      return;
    case Action::kRequest:
      return Request(operation);
    case Action::kDropLease:
      return DropLease(Pick(leases_, operation.object));
    case Action::kAdmit:
      Admit(Pick(leases_, operation.object), operation);
      return;
    case Action::kWait:
      return Wait(operation);
    case Action::kRetry:
      return Retry(operation);
    case Action::kDropWaiter:
      return Erase(waiters_, Pick(waiters_, operation.object));
    case Action::kTakeEvents:
      return TakeEvents();
    case Action::kStartLoad:
      return StartLoad(operation);
    case Action::kPoll:
      return Poll(operation);
    case Action::kInstall:
      return Install(operation);
    case Action::kReserve:
      return Reserve(sequence, operation.count % (most + 1));
    case Action::kAppend:
      Append(sequence, 1 + operation.count % most, operation.random);
      return;
    case Action::kWrite:
      return Write(operation);
    case Action::kCommit:
      return CommitSome(sequence, operation);
    case Action::kTruncate:
      return Truncate(operation);
    case Action::kFork:
      return Fork(operation);
    case Action::kRelease:
      return Release(sequence);
    case Action::kKeepSpan:
      return KeepSpan(operation);
    case Action::kDropCached:
      return DropCached(operation);
    case Action::kSetQuotas:
      return SetQuotas(operation);
    case Action::kDropAll:
      return DropEverything();
    case Action::kExport:
      return Export(operation);
    case Action::kImport:
      return Import(operation);
    case Action::kExplain:
      return Explain(operation);
    case Action::kSetTime:
      return SetTime(operation);
    case Action::kRefuse:
      return Refuse(operation);
    case Action::kTierFault:
      return TierFault(operation);
  }
}

// Usually all.
void Checker::CommitSome(LiveSequence* sequence, const Operation& operation) {
  if (sequence == nullptr) return;
  const size_t open = sequence->model.length() - sequence->model.committed;
  const bool is_part = operation.random % 4 == 0;
  Commit(sequence, sequence->model.committed + (is_part ? operation.count % (open + 1) : open));
}

void Checker::CheckAll() {
  cache_->CheckInvariants();
  CheckMemory(cache_->stats());
  CheckTree();
}

// What holds of the numbers whatever happened.
void Checker::CheckStats(const KvStats& stats) {
  Require(stats.bytes.Sum() == stats.budget_bytes, "the states sum to {} bytes of {}",
          stats.bytes.Sum(), stats.budget_bytes);
  Require(stats.budget_bytes == at_rest_.budget_bytes, "the budget became {}", stats.budget_bytes);
  const StateCounts &now = stats.bytes, &peak = stats.peak_bytes;
  Require(peak.active >= now.active && peak.cached >= now.cached && peak.reserved >= now.reserved,
          "a peak is below the present");
  Require(peak.active >= last_.peak_bytes.active && peak.cached >= last_.peak_bytes.cached,
          "a peak fell");
  for (size_t i = 0; i < kNumEvictionCauses; ++i) {
    Require(stats.evicted_blocks[i] >= last_.evicted_blocks[i], "evictions fell");
  }
  Require(stats.blocks_published >= last_.blocks_published && stats.take_overs >= last_.take_overs,
          "a count fell");
  Require(stats.take_overs >= num_take_overs_, "{} take-overs counted, {} told", stats.take_overs,
          num_take_overs_);
  Require(stats.one_answer_violations == 0 || setup_.has_faults,
          "{} violations where all rows are true", stats.one_answer_violations);
  Require(store_.bytes_held() <= stats.budget_bytes, "the store holds {} bytes of {}",
          store_.bytes_held(), stats.budget_bytes);
  NoteLosses();
  CheckShares();
  last_ = stats;
}

void Checker::NoteLosses() {
  const KvStats stats = cache_->stats();
  // What goes because nobody can reach it was lost before, or is a tail that a longer text
  // replaces.
  const auto unreachable = static_cast<size_t>(EvictionCause::kUnreachable);
  if (NumEvicted(stats) - stats.evicted_blocks[unreachable] !=
      NumEvicted(last_) - last_.evicted_blocks[unreachable]) {
    index_.Lost();
  }
}

// Blocks that sequences show are active, and shared within one namespace only.
void Checker::CheckMemory(const KvStats& stats) const {
  std::map<const std::byte*, size_t> owners;  // block → namespace
  size_t shown_bytes = 0;
  for (const auto& sequence : sequences_) {
    for (size_t i = 0; i < setup_.groups.size(); ++i) {
      const PagedView view = sequence->real.View(GroupId(i));
      for (size_t k = 0; k < view.num_blocks; ++k) {
        if (IsZeroBlock(view.blocks[k], setup_.groups[i])) continue;  // perhaps the common one
        const size_t ns = sequence->model.text().ns();
        const auto [entry, is_new] = owners.emplace(view.blocks[k], ns);
        if (is_new) shown_bytes += setup_.groups[i].block_bytes;
        Require(entry->second == ns, "a block is shown in namespaces {} and {}", ns, entry->second);
      }
    }
  }
  Require(stats.bytes.active >= at_rest_.bytes.active + shown_bytes,
          "{} bytes active, {} shown by sequences", stats.bytes.active, shown_bytes);
  if (options_.mutation == Mutation::kMixesNamespaces) return;

  size_t active_bytes = at_rest_.bytes.active, cached_bytes = 0;
  for (const auto& [account, usage] : Usage()) {
    active_bytes += usage.active_bytes;
    cached_bytes += usage.cached_bytes;
    Require(usage.peak_active_bytes >= usage.active_bytes &&
                usage.peak_cached_bytes >= usage.cached_bytes,
            "a peak of an account is below the present");
  }
  Require(active_bytes == stats.bytes.active, "accounts have {} bytes active of {}", active_bytes,
          stats.bytes.active);
  Require(cached_bytes == stats.bytes.cached, "accounts have {} bytes cached of {}", cached_bytes,
          stats.bytes.cached);
}

void Checker::CheckTree() const {
  for (size_t i = 0; i < namespaces_.size(); ++i) CheckTreeOf(i);
}

// Every text of the tree was published in this namespace.
void Checker::CheckTreeOf(size_t ns) const {
  if (options_.mutation == Mutation::kMixesNamespaces) return;
  std::vector<uint64_t> prefixes;  // of the path to the node, by depth: that at the node's end
  std::vector<size_t> ends;
  for (const TreeNode& node : cache_->Tree(namespaces_[ns])) {
    Require(node.depth <= prefixes.size(), "a node of depth {} after one of {}", node.depth,
            prefixes.size());
    prefixes.resize(node.depth);
    ends.resize(node.depth);
    Require((node.depth == 0) == node.tokens.empty(), "a node of depth {} has {} tokens",
            node.depth, node.tokens.size());
    uint64_t prefix = node.depth == 0 ? Text(ns, {}).prefix(0) : prefixes.back();
    size_t position = node.depth == 0 ? 0 : ends.back();
    Require(node.position == position && position % block_tokens() == 0,
            "a node at {} whose parent ends at {}", node.position, position);
    for (const TokenId token : node.tokens) {
      prefix = Text::Extend(prefix, token);
      Require(index_.MayHave(prefix, NaiveIndex::kRows),
              "the tree has {} at {}, and nobody published that", ToText(node.tokens),
              node.position);
    }
    prefixes.push_back(prefix);
    ends.push_back(position + node.tokens.size());
  }
}

void Checker::DropEverything() {
  exports_.clear();
  while (!sequences_.empty()) Release(sequences_.back().get());
  if (options_.mutation != Mutation::kLeaks) leases_.clear();
  while (!waiters_.empty()) {
    TakeEvents();
    // Who was told gives up, so that the next one takes over.
    const size_t num_told =
        std::erase_if(waiters_, [](const auto& waiter) { return waiter->was_told; });
    Require(num_told > 0, "{} waiters are left, and nobody will wake them", waiters_.size());
  }
  CheckNothingLeaked();
  leases_.clear();
}

void Checker::CheckNothingLeaked() {
  if (tier_) tier_->Resume();
  for (int i = 0; tier_ && i < 100; ++i) cache_->PollTier();
  Require(!tier_ || tier_->num_under_way() == 0, "{} I/O operations do not end",
          tier_ ? tier_->num_under_way() : 0);
  const KvStats held = cache_->stats();
  Require(held.bytes.active == at_rest_.bytes.active, "{} bytes are active, and nobody is left",
          held.bytes.active);
  const size_t num_dropped = cache_->DropCached();
  for (int i = 0; tier_ && i < 100; ++i) cache_->PollTier();
  const KvStats stats = cache_->stats();
  const StateCounts &now = stats.bytes, &rest = at_rest_.bytes;
  Require(NumEvicted(stats) - NumEvicted(held) == num_dropped, "{} blocks dropped, {} counted",
          num_dropped, NumEvicted(stats) - NumEvicted(held));
  Require(
      now.cached == 0 && now.active == rest.active && now.reserved == rest.reserved &&
          now.free == rest.free,
      "at rest {} + {} + {} + {} bytes are active, cached, reserved and free, not {} + 0 + {} + "
      "{}",
      now.active, now.cached, now.reserved, now.free, rest.active, rest.reserved, rest.free);
  CheckStats(stats);
  index_.Forget();
}

void Checker::SetTime(const Operation& operation) {
  now_us_ += operation.count;
  cache_->SetTime(now_us_);
}

void Checker::Refuse(const Operation& operation) { store_.refuse_after = operation.count % 3; }

void Checker::FlipByte(const Operation& operation) {
  LiveSequence* const sequence = Pick(sequences_, operation.object);
  if (sequence == nullptr || sequence->model.written() == 0) return;
  *sequence->real.View(GroupId{0}).blocks[0] ^= std::byte{1};
}

// New, or a known text that is cut, changed in one place or goes on otherwise.
Text Checker::MakeText(SplitMix64& random) {
  const size_t ns = random.Below(setup_.num_namespaces);
  const size_t most = 5 * block_tokens();
  const auto word = [&] { return TokenId(random.Below(setup_.num_words)); };
  std::vector<TokenId> tokens;
  if (!corpus_.empty() && random.Below(8) != 0) {
    tokens = corpus_[random.Below(corpus_.size())];
    if (random.Below(2) == 0) tokens.resize(1 + random.Below(tokens.size()));
    if (random.Below(4) == 0) tokens[random.Below(tokens.size())] = word();
  }
  const size_t num_more = random.Below(2) == 0 ? 0 : random.Below(2 * block_tokens());
  for (size_t i = 0; i < num_more || tokens.empty(); ++i) tokens.push_back(word());
  tokens.resize(std::min(tokens.size(), most));
  Remember(tokens);
  return Text(ns, tokens);
}

void Checker::Remember(std::span<const TokenId> tokens) {
  if (tokens.empty()) return;
  std::vector<TokenId> text(tokens.begin(), tokens.end());
  if (std::find(corpus_.begin(), corpus_.end(), text) != corpus_.end()) return;
  if (corpus_.size() < kMaxCorpus) {
    corpus_.push_back(std::move(text));
  } else {
    // Where the text says: so a step that does nothing can be left out.
    corpus_[Text(0, text).prefix(text.size()) % kMaxCorpus] = std::move(text);
  }
}

void Checker::PrintTrace(const std::string& line) { fmt::print(stderr, "    {}\n", line); }

}  // namespace kvern::kv::model_check
