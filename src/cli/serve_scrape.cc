#include "cli/serve_scrape.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <system_error>

namespace kvern::cli {
namespace {

// Values by name and, where there is one beside the model's, by label: "kvern_kv_bytes|active".
using Values = std::map<std::string, double, std::less<>>;

constexpr std::string_view kModelLabel = "model_name";

// The value of the label that is not the model's; `labels` is what stands in braces.
std::string_view LabelOf(std::string_view labels) {
  while (!labels.empty()) {
    const size_t equals = labels.find("=\"");
    if (equals == labels.npos) break;
    const std::string_view name = labels.substr(0, equals);
    labels.remove_prefix(equals + 2);
    size_t end = 0;
    while (end < labels.size() && labels[end] != '"') end += labels[end] == '\\' ? 2 : 1;
    if (end >= labels.size()) break;
    const std::string_view value = labels.substr(0, end);
    if (name != kModelLabel) return value;
    labels.remove_prefix(end + 1);
    while (labels.starts_with(',') || labels.starts_with(' ')) labels.remove_prefix(1);
  }
  return {};
}

void AddLine(std::string_view line, Values& values) {
  if (line.empty() || line.front() == '#') return;
  const size_t space = line.rfind(' ');
  if (space == line.npos) return;
  std::string_view name = line.substr(0, space);
  const std::string_view number = line.substr(space + 1);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return;
  std::string key;
  if (const size_t brace = name.find('{'); brace != name.npos) {
    const std::string_view label = LabelOf(name.substr(brace + 1));
    key = name.substr(0, brace);
    if (!label.empty()) key.append("|").append(label);
  } else {
    key = name;
  }
  values[key] += value;  // of all models
}

class MetricReader {
 public:
  explicit MetricReader(const Values& values) : values_(values) {}

  double Number(std::string_view name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? 0 : found->second;
  }

  template <typename T>
  void Take(std::string_view name, T& value, double scale = 1) const {
    const double number = std::round(Number(name) * scale);
    constexpr double kMost = 9e15;  // exact in a double
    value = static_cast<T>(std::min(std::max(number, 0.0), kMost));
  }

  void TakeStates(std::string_view name, kv::StateCounts& states) const {
    const std::string prefix = std::string(name) + "|";
    Take(prefix + "active", states.active);
    Take(prefix + "cached", states.cached);
    Take(prefix + "reserved", states.reserved);
    Take(prefix + "free", states.free);
  }

  void TakePrompts(kv::PromptSplit& split) const {
    Take("kvern_prompt_hits_total|ram", split.ram);
    Take("kvern_prompt_hits_total|tier", split.tier);
    Take("kvern_prompt_hits_total|in_flight", split.in_flight);
    Take("kvern_prompt_hits_total|partial", split.partial);
    for (size_t i = 0; i < kv::kNumMissReasons; ++i) {
      Take("kvern_prompt_misses_total|" + std::string(kv::ToString(static_cast<kv::MissReason>(i))),
           split.miss[i]);
    }
  }

 private:
  const Values& values_;
};

}  // namespace

std::optional<EngineStats> ParseMetrics(std::string_view text) {
  Values values;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    AddLine(text.substr(0, end), values);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const MetricReader metrics(values);
  if (!values.contains("kvern_kv_budget_bytes")) return std::nullopt;
  EngineStats stats;
  metrics.Take("vllm:num_requests_running", stats.running);
  metrics.Take("vllm:num_requests_waiting", stats.waiting);
  metrics.Take("kvern_waiting_for_prefix", stats.waiting_prefix);
  stats.waiting -= std::min(stats.waiting, stats.waiting_prefix);  // they count there too
  metrics.Take("kvern_requests_total", stats.requests);
  metrics.Take("kvern_requests_refused_total", stats.refused);
  metrics.Take("kvern_requests_failed_total", stats.failed);
  metrics.Take("kvern_requests_cancelled_total", stats.cancelled);
  metrics.Take("llamacpp:n_decode_total", stats.steps);
  metrics.Take("kvern_steps_kv_bound_total", stats.steps_kv_bound);
  metrics.Take("kvern_steps_queue_bound_total", stats.steps_queue_bound);
  metrics.Take("llamacpp:prompt_tokens_total", stats.prefilled_tokens);
  metrics.Take("llamacpp:n_busy_slots_per_decode", stats.decoded_tokens,
               static_cast<double>(stats.steps));
  metrics.Take("kvern_drafted_tokens_total", stats.drafted_tokens);
  metrics.Take("kvern_accepted_tokens_total", stats.accepted_tokens);
  metrics.Take("vllm:num_preemptions_total", stats.preemptions);
  metrics.Take("kvern_self_checks_total", stats.self_checks);
  metrics.Take("kvern_self_check_failures_total", stats.self_check_failures);
  metrics.Take("kvern_step_seconds_total|schedule", stats.schedule_us, 1e6);
  metrics.Take("kvern_step_seconds_total|execute", stats.execute_us, 1e6);
  metrics.Take("kvern_step_seconds_total|commit", stats.commit_us, 1e6);
  metrics.TakeStates("kvern_kv_bytes", stats.kv.bytes);
  metrics.Take("kvern_kv_budget_bytes", stats.kv.budget_bytes);
  metrics.Take("kvern_kv_index_bytes", stats.kv.index_bytes);
  metrics.TakePrompts(stats.kv.prompts);
  metrics.Take("kvern_one_answer_violations_total", stats.kv.one_answer_violations);
  return stats;
}

}  // namespace kvern::cli
