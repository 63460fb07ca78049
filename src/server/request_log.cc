#include "server/request_log.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace kvern::server {
namespace {

// Whether such tokens had been computed before: where memory, a tier or other people's walls are to
// blame and not the text.
bool IsAgain(kv::MissReason reason) {
  return reason == kv::MissReason::kEvicted || reason == kv::MissReason::kUnknown ||
         reason == kv::MissReason::kGroupNotHeld || reason == kv::MissReason::kTierFailed ||
         reason == kv::MissReason::kPolicyOff;
}

std::string KeyOfHead(const AnswerInfo& info) {
  std::string key = fmt::format("{}:{}", info.tenant.size(), info.tenant);
  for (const TokenId token : info.prompt_head) {
    key += fmt::format(",{}", static_cast<uint32_t>(token));
  }
  return key;
}

}  // namespace

void RequestLog::OnBegin(const AnswerInfo& info, uint64_t engine_id) {
  const std::lock_guard lock(mutex_);
  live_.emplace(engine_id, RequestRecord{.info = info, .engine_id = engine_id});
  engine_ids_.emplace(info.id, engine_id);
}

void RequestLog::OnEnd(const AnswerInfo& info, const Report& report,
                       std::optional<FinishReason> finish) {
  const std::lock_guard lock(mutex_);
  live_.erase(report.id);
  engine_ids_.erase(info.id);
  auto kept = std::make_shared<Report>(report);
  kept->receipt = {};  // long, and the client has it
  ended_.push_back(
      {.info = info, .engine_id = report.id, .report = std::move(kept), .finish = finish});
  if (ended_.size() > kMaxEnded) ended_.pop_front();
  CountRecomputed(info, report);
}

void RequestLog::CountRecomputed(const AnswerInfo& info, const Report& report) {
  size_t tokens = 0;
  const kv::Miss* worst = nullptr;
  for (const kv::Miss& miss : report.misses) {
    if (!IsAgain(miss.reason)) continue;
    tokens += miss.num_tokens;
    if (worst == nullptr || miss.num_tokens > worst->num_tokens) worst = &miss;
  }
  if (worst == nullptr) return;
  Recomputed& row = recomputed_[KeyOfHead(info)];
  row.tenant = info.tenant;
  row.prompt_head = info.prompt_head;
  row.tokens += tokens;
  ++row.times;
  row.reason = worst->reason;
  row.cause = worst->cause;
  if (recomputed_.size() <= kMaxRecomputed) return;
  recomputed_.erase(std::ranges::min_element(
      recomputed_, {}, [](const auto& entry) { return entry.second.tokens; }));
}

std::vector<RequestRecord> RequestLog::List(const std::optional<std::string>& tenant,
                                            size_t max_count) const {
  std::vector<RequestRecord> records;
  const auto add = [&](const RequestRecord& record) {
    if (records.size() == max_count || (tenant && record.info.tenant != *tenant)) return;
    records.push_back(record);
  };
  const std::lock_guard lock(mutex_);
  for (const auto& [id, record] : live_) add(record);
  std::for_each(ended_.rbegin(), ended_.rend(), add);
  return records;
}

std::optional<RequestRecord> RequestLog::Find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  if (const auto live = engine_ids_.find(id); live != engine_ids_.end()) {
    return live_.at(live->second);
  }
  const auto ended = std::ranges::find(
      ended_, id, [](const auto& record) -> const std::string& { return record.info.id; });
  return ended != ended_.end() ? std::optional(*ended) : std::nullopt;
}

std::vector<Recomputed> RequestLog::MostRecomputed(const std::optional<std::string>& tenant,
                                                   size_t max_count) const {
  std::vector<Recomputed> rows;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, row] : recomputed_) {
      if (!tenant || row.tenant == *tenant) rows.push_back(row);
    }
  }
  std::ranges::sort(rows, std::ranges::greater(), &Recomputed::tokens);
  rows.resize(std::min(rows.size(), max_count));
  return rows;
}

}  // namespace kvern::server
