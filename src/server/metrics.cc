#include "server/metrics.h"

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace kvern::server {

// Sums over the answers that have ended.
struct AnswerTotals {
  double prompt_s = 0;     // from the first step to the first token
  double predicted_s = 0;  // from then on
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t predicted_tokens = 0;
  uint64_t drafts = 0;
  size_t longest = 0;
};

struct TenantTotals {
  uint64_t requests = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
};
using TenantMap = std::map<std::string, TenantTotals, std::less<>>;

namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kLongSeconds = {
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250};
const prometheus::Histogram::BucketBoundaries kShortSeconds = {
    0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5};

double Seconds(int64_t us) { return static_cast<double>(us) / 1e6; }
double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

struct MetricSource {
  const EngineStats& engine;
  const AnswerTotals& answers;
  size_t max_running;
};

// A metric without labels but the model's name.
struct PlainMetric {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const MetricSource& source);
};

constexpr MetricType kCounter = MetricType::Counter, kGauge = MetricType::Gauge;

const PlainMetric kPlainMetrics[] = {
    // llama.cpp's
    {"llamacpp:prompt_tokens_total", "Prompt tokens of answers that have ended, computed ones",
     kCounter,
     [](const MetricSource& s) {
       return static_cast<double>(s.answers.prompt_tokens - s.answers.cached_tokens);
     }},
    {"llamacpp:prompt_tokens_cached_total", "Prompt tokens that were found in the cache", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.answers.cached_tokens); }},
    {"llamacpp:prompt_seconds_total", "Time of prompts", kCounter,
     [](const MetricSource& s) { return s.answers.prompt_s; }},
    {"llamacpp:tokens_predicted_total", "Tokens of answers that have ended", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.answers.predicted_tokens); }},
    {"llamacpp:tokens_predicted_seconds_total", "Time of their generation", kCounter,
     [](const MetricSource& s) { return s.answers.predicted_s; }},
    {"llamacpp:n_decode_total", "Steps", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.steps); }},
    {"llamacpp:n_tokens_max", "Longest sequence so far", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.answers.longest); }},
    {"llamacpp:n_busy_slots_per_decode", "Tokens that were decoded in a step, on average", kGauge,
     [](const MetricSource& s) {
       return Ratio(static_cast<double>(s.engine.decoded_tokens),
                    static_cast<double>(s.engine.steps));
     }},
    {"llamacpp:prompt_tokens_seconds", "Prompt tokens a second, on average", kGauge,
     [](const MetricSource& s) {
       return Ratio(static_cast<double>(s.answers.prompt_tokens - s.answers.cached_tokens),
                    s.answers.prompt_s);
     }},
    {"llamacpp:predicted_tokens_seconds", "Generated tokens a second of an answer, on average",
     kGauge,
     [](const MetricSource& s) {
       return Ratio(static_cast<double>(s.answers.predicted_tokens), s.answers.predicted_s);
     }},
    {"llamacpp:requests_processing", "Sequences that run", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.engine.running); }},
    {"llamacpp:requests_deferred", "Sequences that wait", kGauge,
     [](const MetricSource& s) {
       return static_cast<double>(s.engine.waiting + s.engine.waiting_prefix);
     }},
    {"llamacpp:spec_decode_num_draft_tokens_total", "Tokens that speculation proposed", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.drafted_tokens); }},
    {"llamacpp:spec_decode_num_accepted_tokens_total", "… and the model said too", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.accepted_tokens); }},
    {"llamacpp:spec_decode_num_drafts_total", "Decoding steps of answers that it drafted for",
     kCounter, [](const MetricSource& s) { return static_cast<double>(s.answers.drafts); }},
    // vLLM's
    {"vllm:num_requests_running", "Sequences that run", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.engine.running); }},
    {"vllm:num_requests_waiting", "Sequences that wait", kGauge,
     [](const MetricSource& s) {
       return static_cast<double>(s.engine.waiting + s.engine.waiting_prefix);
     }},
    {"vllm:kv_cache_usage_perc", "Share of the KV memory that is in use, 0 to 1", kGauge,
     [](const MetricSource& s) {
       return Ratio(static_cast<double>(s.engine.kv.bytes.active),
                    static_cast<double>(s.engine.kv.budget_bytes));
     }},
    {"vllm:prefix_cache_queries_total", "Prompt tokens that were looked up", kCounter,
     [](const MetricSource& s) {
       return static_cast<double>(s.engine.kv.prompts.hit() + s.engine.kv.prompts.missed());
     }},
    {"vllm:prefix_cache_hits_total", "Prompt tokens that were found", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.kv.prompts.hit()); }},
    {"vllm:num_preemptions_total", "Sequences that had to yield their memory", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.preemptions); }},
    {"vllm:prompt_tokens_total", "Prompt tokens, found ones included", kCounter,
     [](const MetricSource& s) {
       return static_cast<double>(s.engine.kv.prompts.hit() + s.engine.kv.prompts.missed());
     }},
    {"vllm:generation_tokens_total", "Tokens that were generated so far", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.decoded_tokens); }},
    // What they lack
    {"kvern_requests_total", "Requests that were accepted", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.requests); }},
    {"kvern_requests_refused_total", "Requests that could never fit, or too many waited", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.refused); }},
    {"kvern_requests_failed_total", "Requests that failed", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.failed); }},
    {"kvern_requests_cancelled_total", "Requests whose clients went", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.cancelled); }},
    {"kvern_waiting_for_prefix", "Sequences that wait for a prefix that another computes", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.engine.waiting_prefix); }},
    {"kvern_prefilled_tokens_total", "Prompt tokens that were computed", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.prefilled_tokens); }},
    {"kvern_paused", "Running sequences whose clients are behind with reading", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.engine.paused); }},
    {"kvern_recomputed_tokens_total", "Tokens that preempted sequences had to compute again",
     kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.kv.resumes.missed()); }},
    {"kvern_running_max", "Sequences that may run at once", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.max_running); }},
    {"kvern_kv_budget_bytes", "KV memory", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.engine.kv.budget_bytes); }},
    {"kvern_kv_index_bytes", "Memory of the prefix tree and its history", kGauge,
     [](const MetricSource& s) { return static_cast<double>(s.engine.kv.index_bytes); }},
    {"kvern_steps_kv_bound_total", "Steps in which somebody waited for KV memory", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.steps_kv_bound); }},
    {"kvern_steps_queue_bound_total", "Steps in which somebody waited for a turn", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.steps_queue_bound); }},
    {"kvern_self_checks_total", "Full hits whose last token was computed again", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.self_checks); }},
    {"kvern_self_check_failures_total", "… and differed: memory is damaged", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.self_check_failures); }},
    {"kvern_one_answer_violations_total", "Blocks that were computed twice and differed", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.kv.one_answer_violations); }},
    {"kvern_drafted_tokens_total", "Tokens that speculation proposed", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.drafted_tokens); }},
    {"kvern_accepted_tokens_total", "… and the model said too", kCounter,
     [](const MetricSource& s) { return static_cast<double>(s.engine.accepted_tokens); }},
};

// Builds families, each value with the model's name as a label.
class FamilyBuilder {
 public:
  explicit FamilyBuilder(std::string model_name) : model_name_(std::move(model_name)) {}

  void Begin(const char* name, const char* help, MetricType type) {
    families_.push_back({name, help, type, {}});
  }

  void Add(double value, const char* label = nullptr, std::string_view label_value = {}) {
    MetricFamily& family = families_.back();
    // Who scrapes llama.cpp expects no labels.
    ClientMetric metric = family.name.starts_with("llamacpp:") ? ClientMetric() : Labelled();
    if (label != nullptr) metric.label.push_back({label, std::string(label_value)});
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }

  void AddHistogram(const char* name, const char* help, ClientMetric histogram) {
    Begin(name, help, MetricType::Histogram);
    histogram.label = Labelled().label;
    families_.back().metric.push_back(std::move(histogram));
  }

  std::string ToText() const { return prometheus::TextSerializer().Serialize(families_); }

 private:
  ClientMetric Labelled() const {
    ClientMetric metric;
    metric.label.push_back({"model_name", model_name_});
    return metric;
  }

  const std::string model_name_;
  std::vector<MetricFamily> families_;
};

void AddStates(const kv::KvStats& kv, FamilyBuilder& families) {
  families.Begin("kvern_kv_bytes", "KV memory by state; the four sum to the budget", kGauge);
  for (const auto& [state, bytes] : {std::pair("active", kv.bytes.active),
                                     {"cached", kv.bytes.cached},
                                     {"reserved", kv.bytes.reserved},
                                     {"free", kv.bytes.free}}) {
    families.Add(static_cast<double>(bytes), "state", state);
  }
}

// Whether a text is new or another tenant has it, only an administrator may know.
bool IsOfOthers(kv::MissReason reason) {
  return reason == kv::MissReason::kNeverSeen || reason == kv::MissReason::kOtherNamespace;
}

void AddMisses(const kv::PromptSplit& prompts, MetricsReader reader, FamilyBuilder& families) {
  families.Begin("kvern_prompt_misses_total", "Prompt tokens that had to be computed, by reason",
                 kCounter);
  const bool is_hidden = reader != MetricsReader::kAdministrator;
  size_t num_hidden = 0;
  for (size_t i = 0; i < kv::kNumMissReasons; ++i) {
    if (is_hidden && IsOfOthers(static_cast<kv::MissReason>(i))) num_hidden += prompts.miss[i];
  }
  for (size_t i = 0; i < kv::kNumMissReasons; ++i) {
    const auto reason = static_cast<kv::MissReason>(i);
    if (is_hidden && IsOfOthers(reason)) continue;
    const size_t more = reason == kv::MissReason::kUnknown ? num_hidden : 0;
    families.Add(static_cast<double>(prompts.miss[i] + more), "reason", ToString(reason));
  }
}

void AddHits(const kv::PromptSplit& prompts, FamilyBuilder& families) {
  families.Begin("kvern_prompt_hits_total", "Prompt tokens that were found, by where", kCounter);
  for (const auto& [place, tokens] : {std::pair("ram", prompts.ram),
                                      {"tier", prompts.tier},
                                      {"in_flight", prompts.in_flight},
                                      {"partial", prompts.partial}}) {
    families.Add(static_cast<double>(tokens), "place", place);
  }
}

void AddSteps(const EngineStats& stats, FamilyBuilder& families) {
  families.Begin("kvern_bound_seconds_total",
                 "Time in which somebody waited for KV memory, or else for a turn, or nobody "
                 "waited and something was computed; the rest was idle",
                 kCounter);
  for (const auto& [bound, us] : {std::pair("kv", stats.kv_bound_us),
                                  {"queue", stats.queue_bound_us},
                                  {"compute", stats.compute_bound_us}}) {
    families.Add(Seconds(us), "bound", bound);
  }
  families.Begin("kvern_step_seconds_total", "Time of the engine's thread, by part of a step",
                 kCounter);
  for (const auto& [part, us] : {std::pair("schedule", stats.schedule_us),
                                 {"execute", stats.execute_us},
                                 {"commit", stats.commit_us}}) {
    families.Add(Seconds(us), "part", part);
  }
}

// Powers of four: 1 ms … 19 h.
ClientMetric ToMetric(const kv::Histogram& histogram) {
  constexpr size_t kFirstBucket = 10, kLastBucket = 36, kStride = 2;
  ClientMetric metric;
  metric.histogram.sample_count = histogram.count;
  metric.histogram.sample_sum = Seconds(static_cast<int64_t>(histogram.sum));
  uint64_t count = 0;
  for (size_t i = 0; i < kv::Histogram::kNumBuckets; ++i) {
    count += histogram.buckets[i];  // values below 2^i
    if (i < kFirstBucket || i > kLastBucket || i % kStride != 0) continue;
    metric.histogram.bucket.push_back({count, std::ldexp(1e-6, static_cast<int>(i))});
  }
  metric.histogram.bucket.push_back({histogram.count, HUGE_VAL});
  return metric;
}

void AddCache(const kv::KvStats& kv, FamilyBuilder& families) {
  families.Begin("kvern_evicted_blocks_total", "Blocks that left the cache, by cause", kCounter);
  for (size_t i = 0; i < kv::kNumEvictionCauses; ++i) {
    families.Add(static_cast<double>(kv.evicted_blocks[i]), "cause",
                 ToString(static_cast<kv::EvictionCause>(i)));
  }
  families.AddHistogram("kvern_eviction_age_seconds", "From a block's publication to its eviction",
                        ToMetric(kv.lifetime_us));
  families.AddHistogram("kvern_eviction_idle_seconds", "From a block's last use to its eviction",
                        ToMetric(kv.idle_before_evict_us));
  families.AddHistogram("kvern_reuse_gap_seconds", "Between two uses of cached text",
                        ToMetric(kv.reuse_gap_us));
}

void AddTenants(const TenantMap& tenants, FamilyBuilder& families) {
  struct TenantMetric {
    const char* name;
    const char* help;
    uint64_t TenantTotals::*value;
  };
  constexpr TenantMetric kMetrics[] = {
      {"kvern_tenant_requests_total", "Requests whose answers have ended, by tenant",
       &TenantTotals::requests},
      {"kvern_tenant_prompt_tokens_total", "Prompt tokens of such requests",
       &TenantTotals::prompt_tokens},
      {"kvern_tenant_cached_tokens_total", "Those of them that were found in the cache",
       &TenantTotals::cached_tokens},
      {"kvern_tenant_generated_tokens_total", "Tokens of such answers",
       &TenantTotals::generated_tokens},
  };
  for (const TenantMetric& metric : kMetrics) {
    families.Begin(metric.name, metric.help, kCounter);
    for (const auto& [tenant, totals] : tenants) {
      families.Add(static_cast<double>(totals.*metric.value), "tenant", tenant);
    }
  }
}

void AddTenantMemory(std::span<const TenantMemory> memory, FamilyBuilder& families) {
  if (memory.empty()) return;
  memory = memory.first(std::min(memory.size(), kMaxTenantLabels));
  const auto add = [&](const char* name, const char* help, auto value) {
    families.Begin(name, help, kGauge);
    for (const TenantMemory& of : memory) {
      const size_t bytes = value(of);
      families.Add(bytes == SIZE_MAX ? HUGE_VAL : static_cast<double>(bytes), "tenant", of.tenant);
    }
  };
  add("kvern_tenant_kv_bytes", "KV memory of tenants that have a quota", [](const auto& of) {
    return of.usage.active_bytes + of.usage.cached_bytes + of.usage.reserved_bytes;
  });
  add("kvern_tenant_kv_share_bytes", "The most that such a tenant may have",
      [](const auto& of) { return of.quota.share_bytes; });
  add("kvern_tenant_kv_floor_bytes", "Of its cached blocks, what others leave it",
      [](const auto& of) { return of.quota.floor_bytes; });
}

}  // namespace

struct Metrics::Impl {
  prometheus::Histogram ttft{kLongSeconds};
  prometheus::Histogram queue{kLongSeconds};
  prometheus::Histogram total{kLongSeconds};
  prometheus::Histogram gap{kShortSeconds};
  mutable std::mutex mutex;
  AnswerTotals totals;
  TenantMap tenants;

  // With the mutex held.
  void CountTenant(const Report& report, std::string_view tenant);
};

void Metrics::Impl::CountTenant(const Report& report, std::string_view tenant) {
  if (tenant.empty()) return;
  const bool has_room = tenants.size() < kMaxTenantLabels || tenants.contains(tenant);
  TenantTotals& of = tenants[has_room ? std::string(tenant) : "other"];
  ++of.requests;
  of.prompt_tokens += report.prompt_tokens;
  of.cached_tokens += report.prompt.hit();
  of.generated_tokens += report.completion_tokens;
}

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::OnEnd(const AnswerInfo& info, const Report& report,
                    std::optional<FinishReason> /*finish*/) {
  if (report.ttft_us) impl_->ttft.Observe(Seconds(*report.ttft_us));
  if (report.queue_us) impl_->queue.Observe(Seconds(*report.queue_us));
  if (report.total_us) impl_->total.Observe(Seconds(*report.total_us));
  const std::lock_guard lock(impl_->mutex);
  impl_->CountTenant(report, info.tenant);
  AnswerTotals& totals = impl_->totals;
  totals.prompt_tokens += report.prompt_tokens;
  totals.cached_tokens += report.prompt.hit();
  totals.predicted_tokens += report.completion_tokens;
  // Each step brings one token beside those that it accepts.
  if (report.drafted_tokens > 0) totals.drafts += report.completion_tokens - report.accepted_tokens;
  totals.longest = std::max(totals.longest, report.prompt_tokens + report.completion_tokens);
  if (!report.ttft_us || !report.total_us) return;
  totals.prompt_s += Seconds(*report.ttft_us - report.queue_us.value_or(0));
  totals.predicted_s += Seconds(*report.total_us - *report.ttft_us);
}

void Metrics::OnGap(int64_t gap_us) { impl_->gap.Observe(Seconds(gap_us)); }

std::string Metrics::ToText(const EngineStats& stats, const std::string& model_name,
                            size_t max_running, MetricsReader reader,
                            std::span<const TenantMemory> memory) const {
  AnswerTotals totals;
  TenantMap tenants;
  {
    const std::lock_guard lock(impl_->mutex);
    totals = impl_->totals;
    if (reader == MetricsReader::kAdministrator) tenants = impl_->tenants;
  }
  const MetricSource source{.engine = stats, .answers = totals, .max_running = max_running};
  FamilyBuilder families(model_name);
  for (const PlainMetric& metric : kPlainMetrics) {
    families.Begin(metric.name, metric.help, metric.type);
    families.Add(metric.value(source));
  }
  AddStates(stats.kv, families);
  AddHits(stats.kv.prompts, families);
  AddMisses(stats.kv.prompts, reader, families);
  AddSteps(stats, families);
  AddCache(stats.kv, families);
  if (!tenants.empty()) AddTenants(tenants, families);
  if (reader == MetricsReader::kAdministrator) AddTenantMemory(memory, families);
  families.AddHistogram("vllm:time_to_first_token_seconds", "From arrival to the first token",
                        impl_->ttft.Collect());
  families.AddHistogram("vllm:inter_token_latency_seconds", "Between two chunks of an answer",
                        impl_->gap.Collect());
  families.AddHistogram("vllm:request_queue_time_seconds", "From arrival to the first step",
                        impl_->queue.Collect());
  families.AddHistogram("vllm:e2e_request_latency_seconds", "From arrival to the end",
                        impl_->total.Collect());
  return families.ToText();
}

}  // namespace kvern::server
