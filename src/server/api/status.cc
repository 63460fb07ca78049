// What limits the server now, what would help, and how it was in the last quarter of an hour.
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/verdict.h"
#include "server/api/inspect.h"
#include "server/api/openai_parts.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kVerdictPoints = 6;  // half a minute
constexpr size_t kMaxRecomputed = 10;
constexpr size_t kExcerptOfPrefixBytes = 80;

Json TimesBody(const std::optional<TimePercentiles>& times) {
  return times ? Json({{"p50", times->p50_ms}, {"p99", times->p99_ms}}) : Json();
}

double ShareOf(uint64_t part, uint64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

Json PointBody(const HistoryPoint& point) {
  const EngineStats& stats = point.load.engine;
  const auto rate = [&](uint64_t count) { return static_cast<double>(count) / point.seconds; };
  return {{"time", point.unix_s},
          {"prompt_tokens_per_s", rate(stats.kv.prompts.hit() + stats.kv.prompts.missed())},
          {"computed_tokens_per_s", rate(stats.prefilled_tokens)},
          {"generated_tokens_per_s", rate(stats.decoded_tokens)},
          {"requests_per_s", rate(stats.requests)},
          {"ttft_ms", TimesBody(point.ttft)},
          {"itl_ms", TimesBody(point.gap)},
          {"bytes", StatesBody(stats.kv.bytes)},
          {"hits", FoundBody(stats.kv.prompts)},
          {"misses", MissedByReason(stats.kv.prompts)},
          {"running", stats.running},
          {"waiting", stats.waiting + stats.waiting_prefix},
          {"kv_bound", ShareOf(stats.steps_kv_bound, stats.steps)},
          {"queue_bound", ShareOf(stats.steps_queue_bound, stats.steps)}};
}

const char* BoundName(engine::Bound bound) {
  switch (bound) {
    case engine::Bound::kKv:
      return "kv";
    case engine::Bound::kQueue:
      return "queue";
    case engine::Bound::kCompute:
      return "compute";
  }
  return "";
}

std::string VerdictText(const engine::Verdict& verdict) {
  switch (verdict.bound) {
    case engine::Bound::kKv:
      return fmt::format("KV-bound: requests waited for memory in {:.0f} % of the steps",
                         100 * verdict.kv_share);
    case engine::Bound::kQueue:
      return fmt::format("Queue-bound: requests waited for their turn in {:.0f} % of the steps",
                         100 * verdict.queue_share);
    case engine::Bound::kCompute:
      return fmt::format("Compute-bound: nobody waits, {:.0f} tokens a step",
                         verdict.tokens_per_step);
  }
  return "";
}

// `is_all`: numbers of everybody's requests may be told.
Json VerdictBody(const Serving& serving, const std::optional<engine::Load>& load, bool is_busy,
                 bool is_all) {
  if (!load || !is_busy) {
    return {{"bound", "idle"}, {"text", "Idle: nothing is being computed"}, {"lever", ""}};
  }
  const engine::Verdict verdict = engine::Judge(*load, serving.options);
  Json body = {{"bound", BoundName(verdict.bound)},
               {"text", is_all ? VerdictText(verdict) : std::string(ToString(verdict.bound))},
               {"lever", ""}};
  if (is_all && !verdict.levers.empty()) body["lever"] = verdict.levers[0];
  return body;
}

Json ConfigBody(const Serving& serving) {
  const EngineOptions& options = serving.options;
  return {{"model", serving.name},
          {"context", serving.engine->context()},
          {"policy", options.scheduler.policy},
          {"eviction", options.model.eviction},
          {"max_running", options.scheduler.max_running},
          {"max_waiting", options.scheduler.max_waiting},
          {"step_tokens", options.scheduler.step_tokens},
          {"threads", options.model.num_threads},
          {"k_dtype", options.model.k_dtype},
          {"v_dtype", options.model.v_dtype},
          {"isa", options.model.isa},
          {"speculation", options.speculation.proposer},
          {"fingerprint", serving.engine->fingerprint()}};
}

const char* WhyAgain(kv::MissReason reason) {
  switch (reason) {
    case kv::MissReason::kEvicted:
      return "it was evicted to make room: more KV memory would have kept it";
    case kv::MissReason::kUnknown:
      return "it is not there any more, and was evicted too long ago to tell why";
    case kv::MissReason::kGroupNotHeld:
      return "what lies before its window had been let go of";
    case kv::MissReason::kTierFailed:
      return "loading it failed";
    case kv::MissReason::kPolicyOff:
      return "the requests asked not to use the cache";
    default:
      return "";
  }
}

Json RecomputedBody(const Call& call) {
  Json rows = Json::array();
  for (const Recomputed& row :
       call.server.requests.MostRecomputed(call.VisibleTenant(), kMaxRecomputed)) {
    rows.push_back({{"prefix", ExcerptOf(call.serving(), row.prompt_head, kExcerptOfPrefixBytes)},
                    {"tokens", row.tokens},
                    {"times", row.times},
                    {"reason", ToString(row.reason)},
                    {"why", row.cause.empty() ? WhyAgain(row.reason) : row.cause}});
  }
  return rows;
}

}  // namespace

void HandleStatus(const Call& call) {
  const bool is_all = !call.VisibleTenant();
  const Serving& serving = call.serving();
  const auto load = call.server.history.LoadOfLast(kVerdictPoints);
  const auto point = call.server.history.Last();
  const bool is_busy = point && point->load.engine.steps > 0;
  Json body = {
      {"time", UnixNow()},
      {"uptime_s", static_cast<double>(call.server.clock.now_us() - call.server.begin_us) / 1e6},
      {"verdict", VerdictBody(serving, load, is_busy, is_all)},
      {"kv", KvBody(call)},
      {"config", ConfigBody(serving)},
      {"recomputed", RecomputedBody(call)}};
  if (is_all) body["now"] = point ? PointBody(*point) : Json();
  call.Reply(body);
}

void HandleHistory(const Call& call) {
  double since = 0;
  if (const auto asked = call.Query("since")) {
    const auto [end, error] = std::from_chars(asked->data(), asked->data() + asked->size(), since);
    if (error != std::errc() || end != asked->data() + asked->size()) {
      return call.Fail(BadField("since", "must be a time in seconds, as \"time\" of a point"));
    }
  }
  Json points = Json::array();
  for (const HistoryPoint& point : call.server.history.Points(since)) {
    points.push_back(PointBody(point));
  }
  call.Reply({{"interval_s", History::kPeriodUs / 1'000'000}, {"points", std::move(points)}});
}

}  // namespace kvern::server
