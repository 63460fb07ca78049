#include "server/metrics.h"

#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
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
  size_t longest = 0;
};

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
    {"llamacpp:n_tokens_max", "Longest sequence so far", kGauge,
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
    ClientMetric metric = Labelled();
    if (label != nullptr) metric.label.push_back({label, std::string(label_value)});
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }

  void AddHistogram(const char* name, const char* help, const prometheus::Histogram& histogram) {
    Begin(name, help, MetricType::Histogram);
    ClientMetric metric = histogram.Collect();
    metric.label = Labelled().label;
    families_.back().metric.push_back(std::move(metric));
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

void AddPrompts(const kv::PromptSplit& prompts, FamilyBuilder& families) {
  families.Begin("kvern_prompt_hits_total", "Prompt tokens that were found, by where", kCounter);
  for (const auto& [place, tokens] : {std::pair("ram", prompts.ram),
                                      {"tier", prompts.tier},
                                      {"in_flight", prompts.in_flight},
                                      {"partial", prompts.partial}}) {
    families.Add(static_cast<double>(tokens), "place", place);
  }
  families.Begin("kvern_prompt_misses_total", "Prompt tokens that had to be computed, by reason",
                 kCounter);
  for (size_t i = 0; i < kv::kNumMissReasons; ++i) {
    families.Add(static_cast<double>(prompts.miss[i]), "reason",
                 ToString(static_cast<kv::MissReason>(i)));
  }
}

void AddSteps(const EngineStats& stats, FamilyBuilder& families) {
  families.Begin("kvern_step_seconds_total", "Time of the engine's thread, by part of a step",
                 kCounter);
  for (const auto& [part, us] : {std::pair("schedule", stats.schedule_us),
                                 {"execute", stats.execute_us},
                                 {"commit", stats.commit_us}}) {
    families.Add(Seconds(us), "part", part);
  }
  families.Begin("kvern_evicted_blocks_total", "Blocks that left the cache, by cause", kCounter);
  for (size_t i = 0; i < kv::kNumEvictionCauses; ++i) {
    families.Add(static_cast<double>(stats.kv.evicted_blocks[i]), "cause",
                 ToString(static_cast<kv::EvictionCause>(i)));
  }
}

}  // namespace

struct Metrics::Impl {
  prometheus::Histogram ttft{kLongSeconds};
  prometheus::Histogram queue{kLongSeconds};
  prometheus::Histogram total{kLongSeconds};
  prometheus::Histogram gap{kShortSeconds};
  mutable std::mutex mutex;
  AnswerTotals totals;
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Metrics::OnEnd(const AnswerInfo& /*info*/, const Report& report,
                    std::optional<FinishReason> /*finish*/) {
  if (report.ttft_us) impl_->ttft.Observe(Seconds(*report.ttft_us));
  if (report.queue_us) impl_->queue.Observe(Seconds(*report.queue_us));
  if (report.total_us) impl_->total.Observe(Seconds(*report.total_us));
  const std::lock_guard lock(impl_->mutex);
  AnswerTotals& totals = impl_->totals;
  totals.prompt_tokens += report.prompt_tokens;
  totals.cached_tokens += report.prompt.hit();
  totals.predicted_tokens += report.completion_tokens;
  totals.longest = std::max(totals.longest, report.prompt_tokens + report.completion_tokens);
  if (!report.ttft_us || !report.total_us) return;
  totals.prompt_s += Seconds(*report.ttft_us - report.queue_us.value_or(0));
  totals.predicted_s += Seconds(*report.total_us - *report.ttft_us);
}

void Metrics::OnGap(int64_t gap_us) { impl_->gap.Observe(Seconds(gap_us)); }

std::string Metrics::ToText(const EngineStats& stats, const std::string& model_name,
                            size_t max_running) const {
  AnswerTotals totals;
  {
    const std::lock_guard lock(impl_->mutex);
    totals = impl_->totals;
  }
  const MetricSource source{.engine = stats, .answers = totals, .max_running = max_running};
  FamilyBuilder families(model_name);
  for (const PlainMetric& metric : kPlainMetrics) {
    families.Begin(metric.name, metric.help, metric.type);
    families.Add(metric.value(source));
  }
  AddStates(stats.kv, families);
  AddPrompts(stats.kv.prompts, families);
  AddSteps(stats, families);
  families.AddHistogram("vllm:time_to_first_token_seconds", "From arrival to the first token",
                        impl_->ttft);
  families.AddHistogram("vllm:inter_token_latency_seconds", "Between two chunks of an answer",
                        impl_->gap);
  families.AddHistogram("vllm:request_queue_time_seconds", "From arrival to the first step",
                        impl_->queue);
  families.AddHistogram("vllm:e2e_request_latency_seconds", "From arrival to the end",
                        impl_->total);
  return families.ToText();
}

}  // namespace kvern::server
