// What clients of the simulation ask for, and do while they wait.
#include <algorithm>

#include "engine/model_check/simulation.h"
#include "engine/request_check.h"

namespace kvern::engine::model_check {

using kv::model_check::Require;

namespace {

constexpr std::string_view kTenants[] = {"", "a", "b"};

}  // namespace

// Tokens that must have room. The last of an answer has no successor, so needs none.
size_t Simulation::NumNeeded(const Request& request) {
  const size_t num_new = request.max_tokens.value_or(1);
  return request.tokens.size() + num_new - std::min<size_t>(num_new, 1);
}

// That each group can have at once. Several share the pool in slabs of eight blocks.
size_t Simulation::num_blocks_each() const {
  constexpr size_t kSlabBlocks = 8;
  const size_t num_groups = setup_.groups.size();
  const size_t beyond_slabs = num_groups > 1 ? setup_.num_blocks % kSlabBlocks : 0;
  return (setup_.num_blocks - beyond_slabs) / num_groups;
}

size_t Simulation::num_room_tokens() const {
  size_t num_zero_blocks = 0;
  for (const kv::GroupSpec& group : setup_.groups) {
    num_zero_blocks += group.kind != kv::GroupKind::kFull;
  }
  return (num_blocks_each() - num_zero_blocks) * kBlockTokens;
}

size_t Simulation::num_room_tokens(const Request& request) const {
  const size_t block_bytes = kBlockBytes * setup_.groups.size();
  const size_t all = num_blocks_each();
  size_t most = num_room_tokens(), share = SIZE_MAX;
  for (const auto& [tenant, quota] : quotas_) {
    if (!request.cache_group && request.tenant == tenant) {
      // One block more for rows that are copied, where there are several groups.
      const size_t spare = setup_.groups.size() > 1 ? block_bytes : 0;
      share = quota.share_bytes - std::min(quota.share_bytes, spare);
    } else {
      most -= std::min(most, quota.floor_bytes / block_bytes * kBlockTokens);
    }
  }
  return std::min(most, std::min(share / block_bytes, all) * kBlockTokens);
}

// Shares that some requests fit into, and floors that leave others some memory.
void Simulation::SetQuotas(SplitMix64& random) {
  const size_t block_bytes = kBlockBytes * setup_.groups.size();
  const size_t num_blocks = num_blocks_each();
  quotas_.clear();
  std::vector<kv::AccountQuota> rows;
  for (const std::string tenant : {"a", "b"}) {
    if (random.Below(4) == 0) continue;
    kv::Quota quota;
    if (random.Below(3) > 0) quota.share_bytes = (2 + random.Below(num_blocks)) * block_bytes;
    if (random.Below(3) > 0) {
      const size_t most = std::min(quota.share_bytes / block_bytes, num_blocks / 3);
      quota.floor_bytes = random.Below(most + 1) * block_bytes;
    }
    quotas_[tenant] = quota;
    rows.push_back({AccountOfTenant(tenant), quota});
  }
  const Status status = cache_->SetQuotas(rows);
  Require(status.ok(), "quotas: {}", status.ok() ? "" : status.error().message);
  for (const auto& client : live_) {
    client->least_room = std::min(client->least_room, num_room_tokens(client->request()));
  }
}

void Simulation::AddTail(Text& text, size_t num_tokens, SplitMix64& random) const {
  for (; num_tokens > 0; --num_tokens) {
    text.push_back(TokenId{static_cast<uint32_t>(random.Below(model_.vocab_size))});
  }
}

// New, or made from an earlier text: its beginning, all of it, more, or with a change.
Simulation::Text Simulation::MakePrompt(const Operation& operation, SplitMix64& random) const {
  const size_t length = 1 + random.Below(2 * setup_.mean_prompt);
  Text text;
  const uint64_t kind = random.Below(8);
  if (corpus_.empty() || kind == 0) {
    AddTail(text, length, random);
    return text;
  }
  text = corpus_[operation.object % corpus_.size()];
  if (kind <= 3) {  // a common beginning
    text.resize(1 + random.Below(text.size()));
    AddTail(text, random.Below(40), random);
  } else if (kind == 4) {  // a change in the middle
    text[random.Below(text.size())] =
        TokenId{static_cast<uint32_t>(random.Below(model_.vocab_size))};
  } else if (kind <= 6) {  // the conversation goes on
    AddTail(text, random.Below(40), random);
  }
  // Most fit.
  const size_t most = setup_.context - std::min(setup_.context / 2, setup_.mean_new * 2);
  if (random.Below(64) > 0) text.resize(std::min(text.size(), most));
  if (setup_.has_overlong && random.Below(16) == 0) AddTail(text, setup_.context, random);
  return text;
}

void Simulation::SetLimits(Request& request, SplitMix64& random) const {
  request.max_tokens = 1 + random.Below(2 * setup_.mean_new);
  if (random.Below(16) == 0 && !setup_.has_quotas) request.max_tokens.reset();
  if (request.max_tokens && random.Below(64) > 0) {
    const size_t prompt = std::min(request.tokens.size(), setup_.context - 1);
    request.max_tokens = std::min(*request.max_tokens, setup_.context - prompt);
  }
  request.ignore_end = random.Below(3) == 0;
  if (random.Below(6) == 0) {
    request.stop_tokens = {TokenId{static_cast<uint32_t>(random.Below(model_.vocab_size))}};
  }
  if (random.Below(10) == 0) {
    request.deadline_us = static_cast<int64_t>(random.Below(40'000));
  }
}

Request Simulation::MakeRequest(Text prompt, SplitMix64& random) const {
  Request request;
  request.tokens = std::move(prompt);
  request.seed = random.Below(1'000);
  request.sampling.seed = *request.seed;
  request.sampling.temperature = random.Below(3) == 0 ? 0.0f : 0.8f;
  request.sampling.presence_penalty = random.Below(4) == 0 ? 0.5f : 0.0f;
  request.sampling.num_logprobs = random.Below(8) == 0 ? 2 : 0;
  request.n = random.Below(6) == 0 ? 1 + random.Below(4) : 1;
  SetLimits(request, random);
  request.priority = static_cast<int>(random.Below(5)) - 2;
  request.tenant =
      setup_.has_quotas || random.Below(3) == 0 ? kTenants[random.Below(std::size(kTenants))] : "";
  if (random.Below(6) == 0) request.cache_group = "shared";
  request.cache.use = random.Below(12) > 0;
  request.cache.publish = random.Below(12) > 0;
  request.cache.retention = static_cast<kv::Retention>(random.Below(3));
  if (setup_.span_blocks > 0 && random.Below(4) == 0) {
    request.cache.spans.push_back({.num_tokens = 1 + random.Below(request.tokens.size()),
                                   .ttl_us = static_cast<int64_t>(random.Below(100'000))});
  }
  return request;
}

Reading Simulation::MakeReading(SplitMix64& random) const {
  Reading reading;
  if (random.Below(5) == 0) reading.room = 1 + random.Below(6);
  if (setup_.has_faults && random.Below(20) == 0) reading.throws_at = random.Below(8);
  return reading;
}

void Simulation::Burst(const Operation& operation) {
  SplitMix64 random(operation.random);
  const Text prefix = MakePrompt(operation, random);
  for (size_t left = 2 + operation.count % 7; left > 0 && num_live() < setup_.max_live; --left) {
    Text prompt = prefix;
    AddTail(prompt, random.Below(24), random);
    Submit(MakeRequest(std::move(prompt), random), MakeReading(random));
  }
}

void Simulation::Submit(Request request, Reading reading) {
  // Now and then one that shares with nobody.
  const bool is_stranger = *request.seed % 32 == 0;
  if (is_stranger) request.cache_group = fmt::format("stranger {}", ++num_strangers_);
  auto client = std::make_unique<Client>(request, &rules_, &model_, &clock_, reading);
  const Result<RequestId> id = core_->Submit(request, client.get());
  if (!id.ok()) {
    Trace("refused: {}", id.error().message);
    ++counts_.refused;
    ++of_core_.refused;
    return CheckRefusal(request, id.error());
  }
  const size_t most = std::min(rules_.context, num_room_tokens(request));
  Require(NumNeeded(request) <= most, "{} tokens were accepted, but {} fit", NumNeeded(request),
          most);
  client->id = *id;
  client->is_stranger = is_stranger;
  client->least_room = most;
  Trace("request {}: {} tokens, {} new, n {}, tenant '{}', priority {}", static_cast<uint64_t>(*id),
        request.tokens.size(), request.max_tokens.value_or(0), request.n, request.tenant,
        request.priority);
  ++counts_.requests;
  ++of_core_.requests;
  live_.push_back(std::move(client));
}

void Simulation::CheckRefusal(const Request& request, const Error& error) const {
  const size_t needed = NumNeeded(request);
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      Require(needed > setup_.context, "{} tokens in a context of {} were refused: {}", needed,
              setup_.context, error.message);
      return;
    case ErrorCode::kOutOfMemory:
      Require(needed > num_room_tokens(request), "{} tokens were refused, with room for {}: {}",
              needed, num_room_tokens(request), error.message);
      return;
    case ErrorCode::kOverloaded: {
      const EngineStats stats = core_->stats();
      const size_t num_waiting = stats.waiting + stats.waiting_prefix + stats.loading;
      Require(num_waiting >= setup_.scheduler.max_waiting,
              "{} sequences wait, and a request was refused: {}", num_waiting, error.message);
      return;
    }
    default:
      kv::model_check::Fail("a request was refused: " + error.message);
  }
}

Client* Simulation::PickLive(uint32_t object) const {
  return live_.empty() ? nullptr : live_[object % live_.size()].get();
}

void Simulation::Cancel(const Operation& operation) {
  // Sometimes all.
  const size_t most = operation.count < 4 ? live_.size() : 1;
  for (size_t i = 0; i < most; ++i) {
    Client* const client = PickLive(operation.object + static_cast<uint32_t>(i));
    if (client == nullptr) return;
    client->is_cancelled = true;
    core_->Cancel(client->id);
    Require(client->is_finished(), "a cancelled request lives on");
  }
  if (options_.mutation == Mutation::kLeaks && !corpus_.empty()) {
    const auto ns = core_->NamespaceOf({});
    if (ns.ok()) leaked_.emplace(cache_->Lookup({.ns = *ns, .tokens = corpus_[0]}));
  }
}

void Simulation::Read(const Operation& operation) {
  Client* const client = PickLive(operation.object);
  if (client != nullptr) client->Read();
}

void Simulation::PlanTierFault(const Operation& operation) {
  if (!tier_) return;
  if (operation.count % 4 == 0) {
    tier_->Stall(operation.random % 8);
  } else {
    tier_->FaultAt(tier_->num_operations() + operation.object % 4,
                   static_cast<kv::TierFault>(operation.random % 5));
  }
}

}  // namespace kvern::engine::model_check
