// Metrics: what a server tells Prometheus, under the names that dashboards and routers of llama.cpp
// and vLLM scrape already, and under kvern_… what these lack.
//
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kvern/engine.h"
#include "server/answer_observer.h"

namespace kvern::server {

// Who reads it. Others must not learn from it what tenants ask, nor who they are.
enum class MetricsReader { kAnybody, kAdministrator };

// Tenants with lines of their own; those that come later are counted together, as "other".
inline constexpr size_t kMaxTenantLabels = 64;

// KV memory of a tenant that has a quota.
struct TenantMemory {
  std::string tenant;
  kv::NamespaceUsage usage = {};
  kv::Quota quota = {};
};

class Metrics final : public AnswerObserver {
 public:
  Metrics();
  ~Metrics() override;

  void OnGap(int64_t gap_us) override;
  void OnEnd(const AnswerInfo& info, const Report& report,
             std::optional<FinishReason> finish) override;

  // In Prometheus' text format. Tenants are told to administrators alone.
  std::string ToText(const EngineStats& stats, const std::string& model_name, size_t max_running,
                     MetricsReader reader, std::span<const TenantMemory> memory = {}) const;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace kvern::server
