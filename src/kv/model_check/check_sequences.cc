// The part of the checker for sequences: admission, growth, commit, rollback, release.
#include <algorithm>

#include "base/check.h"
#include "kv/model_check/checker.h"

namespace kvern::kv::model_check {
namespace {

constexpr size_t kMaxSequences = 6;

PromptSplit operator-(const PromptSplit& a, const PromptSplit& b) {
  PromptSplit difference{.ram = a.ram - b.ram,
                         .tier = a.tier - b.tier,
                         .in_flight = a.in_flight - b.in_flight,
                         .partial = a.partial - b.partial};
  for (size_t i = 0; i < kNumMissReasons; ++i) difference.miss[i] = a.miss[i] - b.miss[i];
  return difference;
}

}  // namespace

Checker::LiveSequence* Checker::Admit(LiveLease* lease, const Operation& operation) {
  if (lease == nullptr) return nullptr;
  SplitMix64 random(operation.random);
  if (sequences_.size() >= kMaxSequences) Release(Pick(sequences_, operation.object));
  AdmitOptions options;
  options.priority = static_cast<int>(random.Below(4));
  options.publish = random.Below(16) != 0;
  options.is_resume = random.Below(8) == 0;
  if (random.Below(3) == 0) options.reserve_tokens = random.Below(2 * block_tokens());

  const KvStats before = StatsBefore();
  const size_t num_refused = store_.num_refused;
  size_t hit = lease->ram + lease->partial;
  Result<Sequence> real = cache_->Admit(*lease->real, options);
  CheckFloors(lease->prompt().ns());
  if (!real.ok()) {
    Trace("not admitted: {}", real.error().message);
    Require(real.error().code == ErrorCode::kOutOfMemory, "Admit: {}", real.error().message);
    RequireSameMemory(before);
    Require(lease->real->num_ram_tokens() == lease->ram &&
                lease->real->num_partial_tokens() == lease->partial &&
                lease->real->num_tier_tokens() == lease->tier,
            "a lease changed that was not admitted");
    RequireRoomWasShort(lease->prompt().ns(), NumBlocks(lease->ram, hit + options.reserve_tokens),
                        num_refused);
    return nullptr;
  }
  if (is_single_ && lease->partial > 0 && real->length() == lease->ram) {
    // The block to copy from was itself in the way.
    RequireRoomWasShort(lease->prompt().ns(), NumBlocks(lease->ram, hit + options.reserve_tokens),
                        num_refused);
    hit = lease->ram;
    lease->partial = 0;
    lease->lost_rows = true;
  }
  auto live = std::make_unique<LiveSequence>(
      LiveSequence{std::move(*real), NaiveSequence(setup_, lease->prompt(), hit)});
  NaiveSequence& model = live->model;
  model.publishes = lease->uses_cache && options.publish;
  model.is_exposed = lease->is_exposed;
  model.priority = options.priority;
  model.promised = options.reserve_tokens;
  model.published = live->real.num_published();
  const size_t whole = RoundDown(lease->prompt().size());
  if (model.publishes && whole > model.published) model.announced_end = whole;
  if (setup_.has_faults && random.Below(4) == 0) model.salt = 1 + random.Below(2);
  Trace("sequence {}, {} tokens, {} published{}", static_cast<uint64_t>(live->real.id()), hit,
        model.published, model.salt != 0 ? ", writes other bytes" : "");
  CheckAdmitted(*lease, *live, options.is_resume, before);
  model.AdoptRows(live->real, salts_);
  model.CheckViews(live->real);
  sequences_.push_back(std::move(live));
  Erase(leases_, lease);
  return sequences_.back().get();
}

void Checker::CheckAdmitted(const LiveLease& lease, const LiveSequence& sequence, bool is_resume,
                            const KvStats& before) const {
  const KvStats after = cache_->stats();
  const size_t hit = lease.ram + lease.partial;
  Require(sequence.real.length() == hit && sequence.real.committed() == hit,
          "admitted with {} tokens, {} committed; the lease had {}", sequence.real.length(),
          sequence.real.committed(), hit);
  const size_t published = sequence.model.publishes ? lease.ram : 0;
  Require(sequence.real.num_published() == published, "admitted with {} published of {}",
          sequence.real.num_published(), published);
  Require(after.num_prompts - before.num_prompts == (is_resume ? 0 : 1) &&
              after.num_resumes - before.num_resumes == (is_resume ? 1 : 0),
          "the prompt was not counted once");
  const PromptSplit prompts = after.prompts - before.prompts;
  const PromptSplit resumes = after.resumes - before.resumes;
  CheckSplit(lease, is_resume ? resumes : prompts);
  const PromptSplit& none = is_resume ? prompts : resumes;
  Require(none.hit() + none.missed() == 0, "a prompt was counted twice");
}

void Checker::CheckSplit(const LiveLease& lease, const PromptSplit& split) const {
  const size_t n = lease.prompt().size(), hit = lease.ram + lease.partial;
  const size_t is_full = hit == n;
  Require(split.hit() + split.missed() == n, "a prompt of {} tokens was split into {} + {}", n,
          split.hit(), split.missed());
  Require(split.hit() + is_full == hit, "{} tokens counted as hit, {} were", split.hit(), hit);
  Require(split.in_flight == 0 || lease.ram_before_wait, "{} tokens in flight without a wait",
          split.in_flight);
  Require(split.tier == 0 || lease.was_loaded, "{} tokens of the tier without a load", split.tier);
  if (lease.was_loaded) return;
  if (lease.ram_before_wait) {
    const size_t waited = lease.ram - std::min(*lease.ram_before_wait, lease.ram);
    Require(split.in_flight <= waited && split.in_flight + is_full >= waited,
            "{} tokens in flight, {} came while it waited", split.in_flight, waited);
    return;
  }
  const size_t partial = lease.partial > 0 ? lease.partial - is_full : 0;
  Require(split.partial == partial && split.ram == hit - is_full - partial,
          "{} + {} tokens counted as ram and partial, {} + {} were", split.ram, split.partial,
          lease.ram, lease.partial);
  if (lease.tier > 0 || lease.lost_rows) return;
  std::array<size_t, kNumMissReasons> misses{};
  for (const Miss& miss : lease.misses) misses[static_cast<size_t>(miss.reason)] += miss.num_tokens;
  Require(split.miss == misses, "other misses were counted than the lease had");
}

// As an engine does: what is missing is computed in one go.
void Checker::Request(const Operation& operation) {
  LiveSequence* const sequence = Admit(Lookup(operation), operation);
  if (sequence == nullptr) return;
  const size_t num_missing = sequence->model.prompt().size() - sequence->model.length();
  if (num_missing > 0 && !Append(sequence, num_missing, operation.random)) return;
  Commit(sequence, sequence->model.length());
}

void Checker::Reserve(LiveSequence* sequence, size_t num_tokens) {
  if (sequence == nullptr) return;
  const KvStats before = StatsBefore();
  const size_t num_refused = store_.num_refused;
  const Status status = sequence->real.Reserve(num_tokens);
  CheckFloors(sequence->model.text().ns());
  Trace("{} tokens for sequence {}: {}", num_tokens, static_cast<uint64_t>(sequence->real.id()),
        status.ok() ? "reserved" : status.error().message);
  if (status.ok()) {
    sequence->model.promised = num_tokens;
    return;
  }
  Require(status.error().code == ErrorCode::kOutOfMemory, "Reserve: {}", status.error().message);
  RequireSameMemory(before);
  const size_t length = sequence->model.length();
  RequireRoomWasShort(sequence->model.text().ns(), NumBlocks(length, length + num_tokens),
                      num_refused);
}

bool Checker::Append(LiveSequence* sequence, size_t num_tokens, uint64_t seed) {
  if (sequence == nullptr) return false;
  NaiveSequence& model = sequence->model;
  SplitMix64 random(seed);
  num_tokens = std::min(num_tokens, setup_.max_tokens() - model.length());
  if (num_tokens == 0) return false;
  const std::vector<TokenId> tokens = NextTokens(model, num_tokens, random);
  const KvStats before = StatsBefore();
  const size_t num_refused = store_.num_refused, length = model.length();
  const Status status = sequence->real.Append(tokens);
  CheckFloors(sequence->model.text().ns());
  Trace("{} to sequence {} of {}: {}", ToText(tokens), static_cast<uint64_t>(sequence->real.id()),
        length, status.ok() ? "appended" : status.error().message);
  if (!status.ok()) {
    Require(status.error().code == ErrorCode::kOutOfMemory, "Append: {}", status.error().message);
    Require(num_tokens > model.promised, "{} tokens were promised, and {} are refused: {}",
            model.promised, num_tokens, status.error().message);
    RequireSameMemory(before);
    RequireRoomWasShort(sequence->model.text().ns(), NumBlocks(length, length + num_tokens),
                        num_refused);
    return false;
  }
  model.promised = 0;  // of this one Append()
  model.Append(sequence->real, tokens);
  const size_t common = CommonLength(model.text().tokens(), model.prompt().tokens());
  // It strays from what it announced.
  if (common < std::min(model.prompt().size(), model.length())) model.announced_end = 0;
  model.CheckViews(sequence->real);
  return true;
}

// What the prompt has next, or, seldom, something else.
std::vector<TokenId> Checker::NextTokens(const NaiveSequence& model, size_t num_tokens,
                                         SplitMix64& random) const {
  const Text& prompt = model.prompt();
  Text text = model.text();
  const bool strays = random.Below(32) == 0;
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < num_tokens; ++i) {
    const bool follows = !strays && text.size() < prompt.size() &&
                         text.prefix(text.size()) == prompt.prefix(text.size());
    tokens.push_back(follows ? prompt.tokens()[text.size()]
                             : TokenId(random.Below(setup_.num_words)));
    text.Append(tokens.back());
  }
  return tokens;
}

void Checker::Write(const Operation& operation) {
  LiveSequence* const sequence = Pick(sequences_, operation.object);
  if (sequence == nullptr) return;
  NaiveSequence& model = sequence->model;
  const size_t num_open = model.length() - model.written();
  model.WriteRows(sequence->real, model.written() + operation.count % (num_open + 1), salts_);
}

void Checker::Commit(LiveSequence* sequence, size_t num_tokens) {
  if (sequence == nullptr) return;
  NaiveSequence& model = sequence->model;
  if (model.written() < num_tokens) model.WriteRows(sequence->real, num_tokens, salts_);
  const size_t num_due = NumViolationsDue(*sequence, num_tokens);
  const uint64_t violations = cache_->stats().one_answer_violations;
  const size_t published = model.published;
  sequence->real.Commit(num_tokens);
  model.Commit(num_tokens);
  const uint64_t num_found = cache_->stats().one_answer_violations - violations;
  Trace("sequence {} to {} of {}: {} published", static_cast<uint64_t>(sequence->real.id()),
        num_tokens, model.length(), sequence->real.num_published());
  Require(num_found >= num_due, "{} violations counted, {} are due", num_found, num_due);
  model.published = sequence->real.num_published();
  if (num_found > 0) {
    model.publishes = false;
    NoteViolation();
  } else if (model.publishes && !setup_.has_faults) {
    Require(model.published == RoundDown(num_tokens), "{} tokens published of {} committed",
            model.published, num_tokens);
  }
  Require(model.published <= std::max(published, RoundDown(num_tokens)),
          "{} tokens published of {} committed", model.published, num_tokens);
  AddPublished(*sequence, published, !setup_.has_faults);
}

// Texts were taken out of the tree: nobody can be sure that his own is found.
void Checker::NoteViolation() {
  index_.Lost();
  for (const auto& sequence : sequences_) sequence->model.is_exposed = false;
  for (const auto& lease : leases_) lease->is_exposed = false;
}

// Where another published other bytes for this very text, and they are still what is found.
size_t Checker::NumViolationsDue(const LiveSequence& sequence, size_t num_tokens) const {
  const NaiveSequence& model = sequence.model;
  if (!model.publishes || !model.is_exposed) return 0;
  for (const auto& entry : sequences_) {
    const NaiveSequence& other = entry->model;
    if (entry.get() == &sequence || other.text().ns() != model.text().ns() || !other.is_exposed) {
      continue;
    }
    const size_t common = CommonLength(model.text().tokens(), other.text().tokens());
    const size_t end = RoundDown(std::min({common, other.published, num_tokens}));
    for (size_t i = model.published; i < end; ++i) {
      if (model.salts()[i] != other.salts()[i]) return 1;
    }
  }
  return 0;
}

void Checker::AddPublished(const LiveSequence& sequence, size_t from, bool is_sure) {
  const NaiveSequence& model = sequence.model;
  NoteLosses();
  for (size_t end = from + 1; end <= model.published; ++end) {
    if (options_.mutation == Mutation::kForgetsText && end == 2 * block_tokens()) continue;
    uint8_t kinds = NaiveIndex::kRows;
    if (end % block_tokens() == 0) kinds |= NaiveIndex::kBlock;
    index_.Add(model.text(), end, kinds, is_sure);
    // It may hold a state there to go back to.
    if (end % block_tokens() == 0) index_.Add(model.text(), end, NaiveIndex::kState, false);
  }
  if (model.published == model.length() && model.published > from) {
    index_.Add(model.text(), model.published, NaiveIndex::kState, is_sure);
  }
}

void Checker::Truncate(const Operation& operation) {
  LiveSequence* const sequence = Pick(sequences_, operation.object);
  if (sequence == nullptr) return;
  NaiveSequence& model = sequence->model;
  // Mostly a few tokens, sometimes anywhere.
  const size_t most =
      operation.random % 4 == 0 ? model.length() : std::min<size_t>(model.length(), 4);
  const size_t length = model.length() - operation.count % (most + 1);
  const KvStats before = cache_->stats();
  const Status status = sequence->real.Truncate(length);
  Trace("sequence {} from {} to {}: {}", static_cast<uint64_t>(sequence->real.id()), model.length(),
        length, status.ok() ? "truncated" : status.error().message);
  if (!status.ok()) {
    Require(status.error().code == ErrorCode::kInvalidArgument, "Truncate: {}",
            status.error().message);
    Require(!model.CanTruncate(length), "it holds all that {} tokens need: {}", length,
            status.error().message);
    RequireSameMemory(before);
    return;
  }
  // Rows that were final are gone: it is no producer any more.
  if (length < model.committed) model.announced_end = 0;
  model.Truncate(length);
  model.promised = 0;
  const size_t published = sequence->real.num_published();
  Require(published <= model.published && (setup_.has_faults || published == model.published),
          "{} tokens published, not {}", published, model.published);
  model.published = published;
}

void Checker::Fork(const Operation& operation) {
  LiveSequence* sequence = Pick(sequences_, operation.object);
  if (sequence == nullptr || sequences_.size() >= kMaxSequences) return;
  // What two share nobody may write.
  NaiveSequence& model = sequence->model;
  model.WriteRows(sequence->real, model.length(), salts_);
  const KvStats before = cache_->stats();
  model.was_forked = true;
  model.promised = 0;
  auto live = std::make_unique<LiveSequence>(LiveSequence{sequence->real.Fork(), model});
  live->model.announced_end = 0;
  if (setup_.has_faults && operation.count % 4 == 0) live->model.salt = 3;
  Trace("sequence {} of {} tokens → {}", static_cast<uint64_t>(sequence->real.id()), model.length(),
        static_cast<uint64_t>(live->real.id()));
  Require(cache_->stats().bytes.active <= before.bytes.active, "a fork took memory");
  Require(live->real.num_published() == model.published, "a fork with {} tokens published, not {}",
          live->real.num_published(), model.published);
  live->model.CheckViews(live->real);
  sequences_.push_back(std::move(live));
}

void Checker::Release(LiveSequence* sequence) {
  if (sequence == nullptr) return;
  const NaiveSequence& model = sequence->model;
  Remember(model.text().tokens());
  NoteLosses();
  if (model.publishes && is_row_independent_ && model.committed > model.published) {
    const bool is_sure = !setup_.has_faults && !model.was_forked;
    for (size_t end = model.published + 1; end <= model.committed; ++end) {
      index_.Add(model.text(), end, NaiveIndex::kRows, is_sure);
    }
    // Not surely: a longer text may replace the tail, and has no state there.
    index_.Add(model.text(), model.committed, NaiveIndex::kState, false);
  }
  Trace("sequence {} of {} tokens, {} committed", static_cast<uint64_t>(sequence->real.id()),
        model.length(), model.committed);
  Erase(sequences_, sequence);
}

// A call that failed has changed nothing, though cached text may have been evicted for it.
void Checker::RequireSameMemory(const KvStats& before) const {
  const KvStats after = cache_->stats();
  // With several groups, slabs that were freed may have had ends too short for a block.
  const bool is_reserved_same = is_single_ ? after.bytes.reserved == before.bytes.reserved
                                           : after.bytes.reserved <= before.bytes.reserved;
  Require(after.bytes.active == before.bytes.active && is_reserved_same,
          "a call that failed left {} bytes active and {} reserved, before {} and {}",
          after.bytes.active, after.bytes.reserved, before.bytes.active, before.bytes.reserved);
  Require(after.prompts.hit() == before.prompts.hit() &&
              after.prompts.missed() == before.prompts.missed(),
          "a call that failed was counted");
}

// With one group whatever is free or cached can serve, but for what quotas say.
void Checker::RequireRoomWasShort(size_t ns, size_t num_blocks, size_t num_refused) const {
  if (!is_single_ || setup_.has_tier || store_.num_refused > num_refused) return;
  const size_t needed = num_blocks * setup_.groups[0].block_bytes;
  Require(needed > RoomBefore(ns), "{} bytes refused, and {} could be had", needed, RoomBefore(ns));
}

}  // namespace kvern::kv::model_check
