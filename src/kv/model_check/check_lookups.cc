// The part of the checker for what is found: lookups, misses, explanations, loads, records.
#include <algorithm>

#include "kv/model_check/checker.h"

namespace kvern::kv::model_check {
namespace {

constexpr size_t kMaxLeases = 4;
constexpr size_t kMaxExports = 3;

Retention AnyRetention(SplitMix64& random) { return static_cast<Retention>(random.Below(3)); }

bool IsSame(const Miss& a, const Miss& b) {
  return a.reason == b.reason && a.position == b.position && a.num_tokens == b.num_tokens &&
         a.wanted == b.wanted && a.cached == b.cached;
}

std::string ToText(const Production& producer) {
  const std::string who =
      producer.sequence ? fmt::format("{}", static_cast<uint64_t>(*producer.sequence)) : "to come";
  return fmt::format("{} up to {}", who, producer.end);
}

}  // namespace

Checker::LiveLease* Checker::Lookup(const Operation& operation) {
  SplitMix64 random(operation.random);
  if (leases_.size() >= kMaxLeases) DropLease(Pick(leases_, operation.object));
  auto lease = std::make_unique<LiveLease>(std::make_shared<const Text>(MakeText(random)));
  lease->uses_cache = random.Below(16) != 0;
  if (random.Below(6) == 0) lease->max_hit = random.Below(lease->prompt().size() + 1);
  Prompt prompt;
  prompt.ns = namespaces_[lease->prompt().ns()];
  prompt.tokens = lease->prompt().tokens();
  prompt.use_cache = lease->uses_cache;
  prompt.max_hit = lease->max_hit;
  prompt.retention = AnyRetention(random);
  if (random.Below(4) == 0) prompt.ttl_us = static_cast<int64_t>(random.Below(100));
  lease->real.emplace(cache_->Lookup(prompt));
  CheckLease(*lease);
  leases_.push_back(std::move(lease));
  return leases_.back().get();
}

void Checker::ReadLease(LiveLease& lease) {
  const Lease& real = *lease.real;
  lease.ram = real.num_ram_tokens();
  lease.partial = real.num_partial_tokens();
  lease.tier = real.num_tier_tokens();
  lease.producer = real.producer();
  lease.misses.assign(real.misses().begin(), real.misses().end());
}

void Checker::CheckLease(LiveLease& lease) {
  ReadLease(lease);
  NoteLosses();
  Trace("ns {} {}{} → ram {}, partial {}, tier {}, producer {}", lease.prompt().ns(),
        ToText(lease.prompt().tokens()), lease.uses_cache ? "" : " without cache", lease.ram,
        lease.partial, lease.tier, lease.producer ? ToText(*lease.producer) : "none");
  Require(lease.real->num_tokens() == lease.prompt().size(), "a lease of {} tokens, not {}",
          lease.real->num_tokens(), lease.prompt().size());
  CheckHit(lease);
  CheckNothingMissed(lease);
  CheckMisses(lease);
  CheckProducer(lease);
}

void Checker::CheckHit(const LiveLease& lease) const {
  const size_t hit = lease.ram + lease.partial;
  Require(lease.ram % block_tokens() == 0 && lease.partial < block_tokens(),
          "{} ram and {} partial tokens", lease.ram, lease.partial);
  Require(is_row_independent_ || lease.partial == 0, "{} rows of a block that is reused whole",
          lease.partial);
  Require(lease.tier % block_tokens() == 0 && lease.ram + lease.tier <= lease.prompt().size(),
          "{} tokens on the tier after {} of {}", lease.tier, lease.ram, lease.prompt().size());
  Require(setup_.has_tier || lease.tier == 0, "{} tokens on a tier that is not there", lease.tier);
  for (size_t end = lease.ram + block_tokens(); end <= lease.ram + lease.tier;
       end += block_tokens()) {
    Require(index_.EverHad(lease.prompt().prefix(end), NaiveIndex::kBlock),
            "a block on the tier, up to {}, that nobody published", end);
  }
  if (!lease.uses_cache) {
    Require(hit == 0 && lease.tier == 0, "{} tokens found without the cache", hit);
    return;
  }
  const size_t most = index_.Longest(lease.prompt(), lease.max_hit, Certainty::kMay);
  Require(hit <= most, "{} tokens found, at most {} were published", hit, most);
}

// Right after it was looked up.
void Checker::CheckNothingMissed(const LiveLease& lease) const {
  if (setup_.has_faults || !lease.uses_cache) return;
  const size_t hit = lease.ram + lease.partial;
  const size_t least = index_.Longest(lease.prompt(), lease.max_hit, Certainty::kMust);
  Require(hit >= least, "{} tokens found, and nothing was lost of {}", hit, least);
  const size_t pinned = std::min(PinnedLength(lease.prompt()), lease.max_hit);
  Require(hit >= pinned || (!is_row_independent_ && hit >= RoundDown(pinned)),
          "{} tokens found, sequences hold {}", hit, pinned);
}

// What live sequences published of a prompt. Of other groups than full ones they may have let go.
size_t Checker::PinnedLength(const Text& prompt) const {
  size_t most = 0;
  for (const auto& sequence : sequences_) {
    const NaiveSequence& model = sequence->model;
    if (!is_single_ || model.text().ns() != prompt.ns()) continue;
    const size_t common = CommonLength(prompt.tokens(), model.text().tokens());
    most = std::max(most, std::min(common, model.published));
  }
  return is_row_independent_ ? most : RoundDown(most);
}

// The misses cover what was not found, each token once.
void Checker::CheckMisses(const LiveLease& lease) const {
  const size_t n = lease.prompt().size(), hit = lease.ram + lease.partial;
  if (lease.misses.empty()) {
    Require(lease.ram + lease.tier == n, "no miss, and {} of {} tokens found", hit, n);
    return;
  }
  size_t position = lease.misses.front().position;
  const bool is_full = hit == n, is_capped = lease.max_hit < n;
  Require(
      position == (is_full ? n - 1 : hit) || (lease.tier > 0 && position == lease.ram + lease.tier),
      "the misses start at {}, {} of {} tokens were found", position, hit, n);
  for (const Miss& miss : lease.misses) {
    Require(miss.position == position && miss.num_tokens > 0,
            "a miss of {} tokens at {}, not at {}", miss.num_tokens, miss.position, position);
    position += miss.num_tokens;
    const bool is_logits = miss.reason == MissReason::kLogitsNeeded;
    const bool is_off = miss.reason == MissReason::kPolicyOff;
    Require(is_logits == is_full || is_capped, "{} with {} of {} tokens found",
            ToString(miss.reason), hit, n);
    Require(is_off || lease.uses_cache, "{} without the cache", ToString(miss.reason));
    Require(!is_off || !lease.uses_cache || is_capped, "policy off with the cache on");
    if (!is_capped) CheckMiss(lease, miss);
  }
  Require(position == n, "the misses end at {} of {} tokens", position, n);
}

void Checker::CheckMiss(const LiveLease& lease, const Miss& miss) const {
  const Text& prompt = lease.prompt();
  const KvStats stats = cache_->stats();
  const size_t next_block = RoundDown(miss.position) + block_tokens();
  const bool is_whole = next_block <= prompt.size();
  switch (miss.reason) {
    case MissReason::kOtherToken: {
      Require(
          miss.differs_at && *miss.differs_at >= miss.position && *miss.differs_at < prompt.size(),
          "another token, and not where");
      const size_t position = *miss.differs_at;
      Require(miss.wanted && miss.cached && *miss.wanted != *miss.cached &&
                  *miss.wanted == prompt.tokens()[position],
              "the other token at {} is not another one", position);
      const uint64_t other = Text::Extend(prompt.prefix(position), *miss.cached);
      Require(index_.MayHave(other, NaiveIndex::kRows), "no text has token {} at {}",
              static_cast<uint32_t>(*miss.cached), position);
      return;
    }
    case MissReason::kEvicted:
      Require(NumEvicted(stats) + stats.blocks_failed > 0, "evicted, and nothing ever was");
      Require(miss.when_us && *miss.when_us <= now_us_ && !miss.cause.empty(),
              "evicted, without a time or a cause");
      // After a load that failed, the rest keeps the reason that the whole had.
      Require(lease.was_loaded || index_.EverHad(prompt.prefix(std::min(next_block, prompt.size())),
                                                 is_whole ? NaiveIndex::kBlock : NaiveIndex::kRows),
              "evicted at {}, and it was never there", miss.position);
      return;
    case MissReason::kUnknown:
      Require(NumEvicted(stats) > setup_.history_blocks, "unknown after {} evictions",
              NumEvicted(stats));
      return;
    case MissReason::kNeverSeen:
      Require(setup_.has_faults || lease.was_loaded || lease.max_hit != SIZE_MAX || !is_whole ||
                  NumEvicted(stats) > setup_.history_blocks ||
                  !index_.EverHad(prompt.prefix(next_block), NaiveIndex::kBlock),
              "never seen at {}, and it was there", miss.position);
      return;
    case MissReason::kOtherNamespace:
      Require(lease.ram + lease.partial == 0, "another namespace, and {} tokens were found here",
              lease.ram + lease.partial);
      return;
    case MissReason::kGroupNotHeld:
      Require(miss.group && static_cast<size_t>(*miss.group) < setup_.groups.size() &&
                  setup_.groups[static_cast<size_t>(*miss.group)].kind != GroupKind::kFull,
              "a group that is not held, and it is not a window or state");
      return;
    case MissReason::kLogitsNeeded:
      Require(miss.num_tokens == 1, "logits of {} tokens", miss.num_tokens);
      return;
    case MissReason::kTierFailed:
      Require(setup_.has_tier && !miss.cause.empty(), "a tier failed that is not there");
      return;
    case MissReason::kPolicyOff:
      return;
  }
}

void Checker::CheckProducer(const LiveLease& lease) const {
  const size_t hit = lease.ram + lease.partial;
  size_t furthest = 0;
  for (const auto& sequence : sequences_) {
    if (lease.uses_cache && MayProvide(*sequence, lease.prompt())) {
      furthest = std::max(furthest, ProducedEnd(*sequence, lease.prompt()));
    }
  }
  if (lease.producer) {
    const auto& [id, end] = *lease.producer;
    Require(lease.uses_cache && end > hit && end % block_tokens() == 0,
            "a producer up to {} of {} tokens found", end, hit);
    const LiveSequence* const sequence = id ? FindSequence(*id) : nullptr;
    if (sequence != nullptr) {
      Require(
          MayProvide(*sequence, lease.prompt()) && end <= ProducedEnd(*sequence, lease.prompt()),
          "sequence {} does not produce this up to {}", static_cast<uint64_t>(*id), end);
    } else {
      // It took over; perhaps it was not told yet.
      Require(!id && (IsTakenOver(lease.prompt(), end) || IsAwaited(lease.prompt(), end)),
              "a producer up to {} that is not there", end);
    }
  }
  if (setup_.has_faults || lease.max_hit != SIZE_MAX || furthest <= hit) return;
  Require(lease.producer && lease.producer->end >= furthest,
          "somebody produces up to {}, {} were found, and the lease offers {}", furthest, hit,
          lease.producer ? lease.producer->end : 0);
}

void Checker::DropLease(LiveLease* lease) {
  if (lease != nullptr) Erase(leases_, lease);
}

// Explain() says what a lookup then finds, and changes nothing.
void Checker::Explain(const Operation& operation) {
  SplitMix64 random(operation.random);
  const Text prompt = MakeText(random);
  const NamespaceId ns = namespaces_[prompt.ns()];
  const KvStats before = cache_->stats();
  const std::vector<TreeNode> tree = cache_->Tree(ns);
  const Explanation explanation = cache_->Explain(ns, prompt.tokens());
  const KvStats after = cache_->stats();
  Require(after.bytes.active == before.bytes.active && after.bytes.cached == before.bytes.cached &&
              after.prompts.hit() == before.prompts.hit(),
          "Explain() had a side effect");
  const std::vector<TreeNode> tree_after = cache_->Tree(ns);
  Require(std::equal(tree.begin(), tree.end(), tree_after.begin(), tree_after.end(),
                     [](const TreeNode& a, const TreeNode& b) {
                       return a.depth == b.depth && a.tokens == b.tokens &&
                              a.num_holders == b.num_holders && a.num_uses == b.num_uses;
                     }),
          "Explain() changed the tree");
  Require(explanation.nodes_visited <= tree.size(), "{} nodes visited of {}",
          explanation.nodes_visited, tree.size());
  const PromptSplit& split = explanation.split;
  Require(split.hit() + split.missed() == prompt.size(), "a prompt of {} tokens split into {} + {}",
          prompt.size(), split.hit(), split.missed());

  LiveLease lease(std::make_shared<const Text>(prompt));
  Prompt asked;
  asked.ns = ns;
  asked.tokens = lease.prompt().tokens();
  lease.real.emplace(cache_->Lookup(asked));
  CheckLease(lease);
  const bool is_full = lease.ram + lease.partial == prompt.size();
  Require(split.ram + (is_full && lease.partial == 0) == lease.ram, "explained {} tokens, found {}",
          split.ram, lease.ram);
  // What could be loaded or awaited may stand in for rows that could be copied.
  if (split.tier > 0 || split.in_flight > 0) return;
  Require(split.partial + (is_full && lease.partial > 0) == lease.partial,
          "explained {} rows, found {}", split.partial, lease.partial);
  Require(std::equal(explanation.misses.begin(), explanation.misses.end(), lease.misses.begin(),
                     lease.misses.end(), IsSame),
          "explained other misses than those of the lookup");
}

void Checker::KeepSpan(const Operation& operation) {
  SplitMix64 random(operation.random);
  const Text text = MakeText(random);
  const int64_t ttl_us = static_cast<int64_t>(random.Below(200));
  const SpanGrant grant = cache_->KeepSpan(namespaces_[text.ns()], text.tokens(), ttl_us);
  Trace("span of {} {} → {} tokens", text.ns(), ToText(text.tokens()), grant.num_tokens);
  const size_t most = index_.Longest(text, SIZE_MAX, Certainty::kMay);
  size_t full = 0;  // a hybrid may hold less than its full group does
  while (full < text.size() && index_.MayHave(text.prefix(full + 1), NaiveIndex::kRows)) ++full;
  Require(grant.num_tokens <= std::max(most, full), "{} tokens granted, {} may be cached",
          grant.num_tokens, full);
  Require(grant.num_tokens == 0 || grant.expires_us >= now_us_ + ttl_us,
          "a span expires at {}, not {}", grant.expires_us, now_us_ + ttl_us);
  const size_t bytes = grant.num_tokens / block_tokens() * setup_.groups[0].block_bytes;
  Require(bytes <= setup_.span_bytes, "{} bytes granted of {}", bytes, setup_.span_bytes);
}

void Checker::DropCached(const Operation& operation) {
  const KvStats before = cache_->stats();
  const bool is_one = operation.random % 2 == 0;
  const NamespaceId ns = namespaces_[operation.object % namespaces_.size()];
  const size_t num_dropped = is_one ? cache_->DropCached(ns) : cache_->DropCached();
  const KvStats after = cache_->stats();
  Require(NumEvicted(after) - NumEvicted(before) == num_dropped, "{} blocks dropped, {} counted",
          num_dropped, NumEvicted(after) - NumEvicted(before));
  // An account may have cached text in several namespaces.
  Require((is_one && setup_.has_quotas) ||
              (is_one ? cache_->usage(ns).cached_bytes : after.bytes.cached) == 0,
          "{} bytes are cached still", after.bytes.cached);
  Require(after.bytes.active == before.bytes.active, "it dropped what somebody holds");
}

void Checker::StartLoad(const Operation& operation) {
  LiveLease* const lease = Pick(leases_, operation.object);
  if (lease == nullptr) return;
  const KvStats before = cache_->stats();
  const Status status = cache_->StartLoad(*lease->real);
  Trace("{} tokens: {}", lease->tier, status.ok() ? "started" : status.error().message);
  if (status.ok()) {
    Require(lease->tier > 0 && !lease->is_loading, "a load of nothing was started");
    lease->is_loading = true;
  } else {
    const bool is_wrong = status.error().code == ErrorCode::kInvalidArgument;
    const bool is_possible = lease->tier > 0 && !lease->is_loading;
    Require(is_wrong ? !is_possible : lease->tier > 0, "a load of {} tokens was refused: {}",
            lease->tier, status.error().message);
    RequireSameMemory(before);
  }
}

void Checker::Poll(const Operation& operation) {
  LiveLease* const lease = Pick(leases_, operation.object);
  if (lease == nullptr) return cache_->PollTier();
  const LoadProgress progress = cache_->Poll(*lease->real);
  if (!lease->is_loading) {
    Require(progress.done, "a load is under way that was not started");
    return;
  }
  bool is_pending = false, has_failed = false;
  for (const LoadState state : progress.blocks) {
    is_pending |= state == LoadState::kPending;
    has_failed |= state == LoadState::kFailed;
  }
  Require(!progress.done || !is_pending, "a load is done, and a block is pending");
  Require(has_failed == !progress.failure.empty(),
          "a failure without a reason, or a reason without");
}

// What was installed is right if the rows of the sequence admitted with it are.
void Checker::Install(const Operation& operation) {
  LiveLease* const lease = Pick(leases_, operation.object);
  if (lease == nullptr) return;
  const size_t ram_before = lease->ram, tier_before = lease->tier;
  const size_t gained = cache_->Install(*lease->real);
  Trace("{} tokens gained of {}", gained, tier_before);
  // Others may have published more of the prompt meanwhile.
  Require(gained % block_tokens() == 0 && ram_before + gained <= lease->prompt().size(),
          "{} + {} tokens of a prompt of {}", ram_before, gained, lease->prompt().size());
  Require(lease->is_loading || gained == 0, "{} tokens gained without a load", gained);
  if (!lease->is_loading) return;  // it knows of nothing that happened since
  index_.Revive(lease->prompt(), ram_before + gained);
  lease->was_loaded = true;
  lease->is_loading = false;
  ReadLease(*lease);
  Require(lease->ram >= ram_before, "a lease of {} tokens has {} after Install()", ram_before,
          lease->ram);
  Require(!is_single_ || lease->ram == ram_before + gained, "{} + {} tokens gave {}", ram_before,
          gained, lease->ram);
  CheckHit(*lease);
  CheckMisses(*lease);
}

void Checker::TierFault(const Operation& operation) {
  SplitMix64 random(operation.random);
  if (random.Below(8) == 0) return tier_->Stall(operation.count % 16);
  tier_->FaultAt(tier_->num_operations() + operation.count % 8,
                 static_cast<kv::TierFault>(random.Below(5)));
}

void Checker::Export(const Operation& operation) {
  SplitMix64 random(operation.random);
  if (exports_.size() >= kMaxExports) Erase(exports_, Pick(exports_, operation.object));
  const Text text = MakeText(random);
  ExportedText exported{.text = text,
                        .records = cache_->Export(namespaces_[text.ns()], text.tokens())};
  Trace("ns {} {} → {} bytes", text.ns(), ToText(text.tokens()), exported.records.size());
  const bool may_have = index_.MayHave(text.prefix(1), NaiveIndex::kRows);
  Require(exported.records.empty() || may_have, "records of a text that nobody published");
  exports_.push_back(std::make_unique<ExportedText>(std::move(exported)));
}

// Damaged records, and those of another namespace, are refused; whole ones are what was exported.
void Checker::Import(const Operation& operation) {
  const ExportedText* const exported = Pick(exports_, operation.object);
  if (exported == nullptr || exported->records.empty()) return;
  SplitMix64 random(operation.random);
  std::vector<std::byte> records = exported->records;
  const bool is_damaged = random.Below(3) == 0;
  size_t ns = exported->text.ns();
  if (is_damaged) {
    records[random.Below(records.size())] ^= std::byte(1 << random.Below(8));
  } else if (random.Below(4) == 0) {
    ns = random.Below(setup_.num_namespaces);
  }
  const uint64_t violations = cache_->stats().one_answer_violations;
  const Result<size_t> imported = cache_->Import(namespaces_[ns], records);
  if (cache_->stats().one_answer_violations > violations) NoteViolation();
  Trace("{} bytes{} into ns {}: {}", records.size(), is_damaged ? ", damaged" : "", ns,
        imported.ok() ? fmt::format("{}", *imported) : imported.error().message);
  NoteLosses();
  if (is_damaged || ns != exported->text.ns()) {
    Require(!imported.ok(), "records that are {} were accepted",
            is_damaged ? "damaged" : "of another namespace");
  } else {
    const bool is_full = !imported.ok() && imported.error().code == ErrorCode::kOutOfMemory;
    // With false rows about, they may differ from what was computed since.
    Require(imported.ok() || is_full || setup_.has_faults, "records were refused: {}",
            imported.ok() ? "" : imported.error().message);
  }
  if (ns == exported->text.ns()) index_.Revive(exported->text, exported->text.size());
}

}  // namespace kvern::kv::model_check
