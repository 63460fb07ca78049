// RequestLog: the answers that are on their way, and the last that have ended. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/answer_observer.h"

namespace kvern::server {

struct RequestRecord {
  AnswerInfo info;
  uint64_t engine_id = 0;
  std::shared_ptr<const Report> report = {};  // null: it is live, and the engine knows more
  std::optional<FinishReason> finish = {};
};

// Prompts that begin alike, whose tokens were computed though they had been before.
struct Recomputed {
  std::string tenant;
  std::vector<TokenId> prompt_head;
  size_t tokens = 0;  // computed again, all together
  size_t times = 0;
  kv::MissReason reason = kv::MissReason::kEvicted;  // the last time
  std::string cause = {};
};

class RequestLog final : public AnswerObserver {
 public:
  static constexpr size_t kMaxEnded = 256;
  static constexpr size_t kMaxRecomputed = 512;  // texts that are counted
  static constexpr size_t kHeadTokens = 64;      // by which texts are told apart

  void OnBegin(const AnswerInfo& info, uint64_t engine_id) override;
  void OnEnd(const AnswerInfo& info, const Report& report,
             std::optional<FinishReason> finish) override;

  // Those of `tenant`, or all, and no more than this: live ones first, oldest first; then the last
  // that ended, newest first.
  std::vector<RequestRecord> List(const std::optional<std::string>& tenant, size_t max_count) const;
  std::optional<RequestRecord> Find(const std::string& id) const;

  // Most tokens first.
  std::vector<Recomputed> MostRecomputed(const std::optional<std::string>& tenant,
                                         size_t max_count) const;

 private:
  void CountRecomputed(const AnswerInfo& info, const Report& report);

  mutable std::mutex mutex_;
  std::map<uint64_t, RequestRecord> live_;  // by engine_id, which is the order of arrival
  std::unordered_map<std::string, uint64_t> engine_ids_;
  std::deque<RequestRecord> ended_;               // newest last
  std::map<std::string, Recomputed> recomputed_;  // by tenant and head
};

}  // namespace kvern::server
