// Answers on their way and those that have ended: what happened to each, and what it waits for.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "engine/service.h"
#include "server/api/inspect.h"
#include "server/api/routes.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

using LiveReports = std::unordered_map<uint64_t, Report>;  // by Report::id

Json Milliseconds(const std::optional<int64_t>& us) {
  return us ? Json(static_cast<double>(*us) / 1e3) : Json();
}

// The amount of the last event of a kind. 0: there was none.
size_t LastAmount(const Report& report, LifecycleEvent::Kind kind) {
  const auto& events = report.events;
  const auto found = std::find_if(events.rbegin(), events.rend(),
                                  [&](const LifecycleEvent& event) { return event.kind == kind; });
  return found != events.rend() ? found->amount : 0;
}

constexpr size_t kDefaultRequests = 100, kMaxRequests = 5000;

const char* StateOf(const RequestRecord& record, const Report* report) {
  if (record.report) {
    const FinishReason finish = record.finish.value_or(FinishReason::kFailed);
    if (record.report->error || finish == FinishReason::kFailed) return "failed";
    return finish == FinishReason::kCancelled ? "cancelled" : "finished";
  }
  if (report == nullptr) return "finished";  // just now: its report is being written
  if (!report->waits_for) return "running";
  switch (*report->waits_for) {
    case WaitCause::kTurn:
    case WaitCause::kMemory:
    case WaitCause::kShare:
      return "waiting";
    case WaitCause::kPrefix:
      return "waiting_prefix";
    case WaitCause::kTier:
      return "loading";
    case WaitCause::kReader:
      return "paused";
  }
  return "running";
}

std::string WhyOf(const RequestRecord& record, const Report* report) {
  if (record.report) {
    return record.report->error ? record.report->error->message : "it has ended";
  }
  if (report == nullptr) return "it has just ended";
  if (!report->waits_for) {
    return report->ttft_us ? "its tokens are being generated" : "its prompt is being computed";
  }
  switch (*report->waits_for) {
    case WaitCause::kTurn:
      return "it waits for its turn: others are served first";
    case WaitCause::kMemory:
      return "it waits for KV memory that others hold";
    case WaitCause::kShare:
      return "it waits for KV memory: requests of its tenant have all of the tenant's share";
    case WaitCause::kPrefix:
      return fmt::format(
          "it waits until another request has computed the first {} tokens of its prompt",
          LastAmount(*report, LifecycleEvent::Kind::kWaiting));
    case WaitCause::kTier:
      return fmt::format("{} tokens of its prompt are being loaded",
                         LastAmount(*report, LifecycleEvent::Kind::kLoading));
    case WaitCause::kReader:
      return "its client reads more slowly than it is answered";
  }
  return "";
}

Json FinishBody(const RequestRecord& record) {
  return record.finish ? Json(ToString(*record.finish)) : Json();
}

// `report`: as the engine has it now, or null.
Json RequestBody(const RequestRecord& record, const Report* report) {
  const Report none;
  const Report& known = report != nullptr ? *report : none;
  const size_t found = known.prompt.hit();
  const size_t computed =
      std::min(known.prefilled_tokens,
               record.info.prompt_tokens - std::min(found, record.info.prompt_tokens));
  return {{"id", record.info.id},
          {"created", record.info.created_unix_s},
          {"endpoint", record.info.endpoint},
          {"tenant", record.info.tenant},
          {"state", StateOf(record, report)},
          {"waits_for", known.waits_for ? Json(ToString(*known.waits_for)) : Json()},
          {"why", WhyOf(record, report)},
          {"prompt_tokens", record.info.prompt_tokens},
          {"found_tokens", found},
          {"computed_tokens", computed},
          {"completion_tokens", known.completion_tokens},
          {"max_tokens", record.info.max_tokens ? Json(*record.info.max_tokens) : Json()},
          {"completions", record.info.completions},
          {"queue_ms", Milliseconds(known.queue_us)},
          {"ttft_ms", Milliseconds(known.ttft_us)},
          {"tpot_ms", known.tpot_us > 0 ? Json(known.tpot_us / 1e3) : Json()},
          {"total_ms", Milliseconds(known.total_us)},
          {"finish", FinishBody(record)},
          {"error", known.error ? Json(known.error->message) : Json()}};
}

Json DetailedBody(const Call& call, const RequestRecord& record, const Report* report) {
  Json body = RequestBody(record, report);
  if (report == nullptr) return body;
  body["prompt"] = FoundBody(report->prompt);
  body["prompt"]["missed"] = report->prompt.missed();
  Json misses = Json::array();
  const bool is_shared = call.server.options.share_group.has_value();
  for (const kv::Miss& miss : report->misses) {
    misses.push_back(MissBody(*call.serving().text, miss, is_shared));
  }
  body["misses"] = std::move(misses);
  Json events = Json::array();
  for (const LifecycleEvent& event : report->events) {
    events.push_back({{"time_ms", static_cast<double>(event.time_us) / 1e3},
                      {"kind", ToString(event.kind)},
                      {"completion", event.completion},
                      {"amount", event.amount}});
  }
  body["events"] = std::move(events);
  body["blocks_peak"] = report->blocks_peak;
  body["preemptions"] = report->preemptions;
  body["drafted_tokens"] = report->drafted_tokens;
  body["accepted_tokens"] = report->accepted_tokens;
  return body;
}

const Report* FindReport(const RequestRecord& record, const LiveReports& live) {
  if (record.report) return record.report.get();
  const auto found = live.find(record.engine_id);
  return found != live.end() ? &found->second : nullptr;
}

using Records = std::vector<RequestRecord>;

// `reply` is called on a worker's thread, with what the engine says of those of `records` that are
// live. They were submitted before it is asked: those that it does not know have ended.
void WithReports(const Call& call, Records records,
                 void (*reply)(const Call& call, Records& records, const LiveReports& live)) {
  const auto place = std::make_shared<WorkerPool::Place>(*call.server.pool);
  const auto kept = std::make_shared<const Call>(call.WithoutBody());
  const auto asked = std::make_shared<Records>(std::move(records));
  EngineAccess::AskReports(*call.serving().engine,
                           [place, kept, asked, reply](std::vector<Report> reports) {
                             auto live = std::make_shared<LiveReports>();
                             for (Report& report : reports) {
                               const uint64_t id = report.id;
                               live->emplace(id, std::move(report));
                             }
                             place->Post([kept, asked, reply, live] {
                               for (RequestRecord& record : *asked) {
                                 if (record.report || live->contains(record.engine_id)) continue;
                                 if (auto ended = kept->server.requests.Find(record.info.id))
                                   record = *std::move(ended);
                               }
                               reply(*kept, *asked, *live);
                             });
                           });
}

// The one that the path names, if the caller may know of it; else the call has failed.
std::optional<RequestRecord> FindRecord(const Call& call) {
  auto record = call.server.requests.Find(call.parameter);
  const auto tenant = call.VisibleTenant();
  if (record && (!tenant || record->info.tenant == *tenant)) return record;
  call.Fail({.status = 404,
             .type = "not_found_error",
             .message = fmt::format("{}: no such request, or it ended long ago: ids are those of "
                                    "x-request-id",
                                    call.parameter.substr(0, 80))});
  return std::nullopt;
}

}  // namespace

void HandleRequests(const Call& call) {
  const auto limit = QueryCount(call, "limit", kDefaultRequests, kMaxRequests);
  if (!limit) return;
  WithReports(call, call.server.requests.List(call.VisibleTenant(), *limit),
              [](const Call& asked, Records& records, const LiveReports& live) {
                Json list = Json::array();
                for (const RequestRecord& record : records) {
                  list.push_back(RequestBody(record, FindReport(record, live)));
                }
                asked.Reply({{"object", "list"}, {"now", UnixNow()}, {"data", std::move(list)}});
              });
}

void HandleRequest(const Call& call) {
  auto record = FindRecord(call);
  if (!record) return;
  WithReports(call, {*std::move(record)},
              [](const Call& asked, Records& records, const LiveReports& live) {
                asked.Reply(DetailedBody(asked, records[0], FindReport(records[0], live)));
              });
}

void HandleCancelRequest(const Call& call) {
  const auto record = FindRecord(call);
  if (!record) return;
  const bool is_live = call.server.live->Cancel(record->info.id);
  call.Reply({{"id", record->info.id}, {"cancelled", is_live}});
}

}  // namespace kvern::server
