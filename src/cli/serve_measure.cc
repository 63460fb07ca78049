#include "cli/serve_measure.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "cli/bench_table.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/serve_engine_target.h"
#include "cli/serve_mixed_prefill.h"
#include "cli/serve_output.h"

namespace kvern::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kCheckedRequests = 8;
constexpr uint32_t kFirstStepsTokens = 32;
constexpr uint64_t kFirstStepsText = ~uint64_t{0};

struct Opened {
  std::unique_ptr<ServeTarget> target;
  std::unique_ptr<TextMaker> texts;
};

// A target that has computed something, so that no request pays for its first steps.
Result<Opened> Open(const ServeSettings& settings, const EngineOptions& options) {
  Opened opened;
  KVERN_ASSIGN_OR_RETURN(
      opened.target, settings.server ? OpenUrlTarget(*settings.server) : OpenEngineTarget(options));
  opened.texts = std::make_unique<TextMaker>(
      [target = opened.target.get()](std::string_view text, bool add_special) {
        return target->Encode(text, add_special);
      },
      settings.seed);
  KVERN_ASSIGN_OR_RETURN(auto prompt, opened.texts->Make(kFirstStepsText, kFirstStepsTokens, true));
  KVERN_RETURN_IF_ERROR(AskAndWait(
      *opened.target, {.prompt = std::move(prompt), .new_tokens = 4, .use_cache = false}));
  return opened;
}

Result<ServeRun> DriveWithProgress(const Workload& workload, Opened& opened, DriveOptions options) {
  Progress progress("Serving");
  options.progress = [&progress](double share) { progress.Update(share); };
  return Drive(*opened.target, workload, *opened.texts, options);
}

ServeReport ReportOf(const ServeSettings& settings, const Workload& workload, const Opened& opened,
                     const ServeRun& run) {
  ServeReport report{.workload = settings.workload,
                     .description = workload.description,
                     .server = opened.target->description(),
                     .level = settings.level,
                     .summary = Summarize(run, settings.level),
                     .verdict = {}};
  const std::optional known = settings.server ? std::nullopt : std::optional(settings.engine);
  report.verdict = Judge(report.summary, known);
  return report;
}

bool AreEqual(const std::vector<SampledToken>& a, const std::vector<SampledToken>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].id != b[i].id) return false;
    if (std::bit_cast<uint32_t>(a[i].logprob) != std::bit_cast<uint32_t>(b[i].logprob))
      return false;
  }
  return true;
}

// Asks for a sample of the answers again, one by one and without the cache. Returns how many it
// compared.
Result<size_t> CheckAnswers(const Workload& workload, const ServeRun& run, Opened& opened) {
  std::vector<size_t> done;
  for (size_t i = 0; i < run.records.size(); ++i) {
    if (run.records[i].outcome == Outcome::kDone) done.push_back(i);
  }
  const size_t stride = std::max<size_t>(1, done.size() / kCheckedRequests);
  size_t num_checked = 0;
  for (size_t i = 0; i < done.size() && num_checked < kCheckedRequests; i += stride) {
    const size_t index = done[i];
    if (run.records[index].tokens.empty()) {
      return Errorf(ErrorCode::kUnsupported,
                    "--check: the server does not say the ids of tokens (return_token_ids)");
    }
    KVERN_ASSIGN_OR_RETURN(auto prompt, PromptTokens(workload, index, *opened.texts, run.records));
    KVERN_ASSIGN_OR_RETURN(
        const auto tokens,
        AskAndWait(*opened.target, {.prompt = std::move(prompt),
                                    .new_tokens = workload.requests[index].new_tokens,
                                    .use_cache = false}));
    if (!AreEqual(tokens, run.records[index].tokens)) {
      return Errorf(ErrorCode::kCorrupt,
                    "request {} was answered otherwise than alone and without the cache: report "
                    "this with the command that shows it",
                    index);
    }
    ++num_checked;
  }
  return num_checked;
}

// A prompt as a list of pieces: tokens, or the request whose reply stands there.
Result<ordered_json> PiecesOf(const Workload& workload, size_t request, TextMaker& texts) {
  ordered_json pieces = ordered_json::array();
  for (const PromptPart& part : workload.requests[request].prompt) {
    switch (part.kind) {
      case PromptPart::Kind::kText: {
        KVERN_ASSIGN_OR_RETURN(const auto text,
                               texts.Make(part.index, part.num_tokens, pieces.empty()));
        ordered_json tokens = ordered_json::array();
        for (const TokenId token : text) tokens.push_back(static_cast<uint32_t>(token));
        pieces.push_back(std::move(tokens));
        break;
      }
      case PromptPart::Kind::kPrompt: {
        KVERN_ASSIGN_OR_RETURN(ordered_json earlier, PiecesOf(workload, part.index, texts));
        for (ordered_json& piece : earlier) pieces.push_back(std::move(piece));
        break;
      }
      case PromptPart::Kind::kReply:
        pieces.push_back({{"reply_of", part.index}});
        break;
    }
  }
  return pieces;
}

// One JSON object a line, for programs that do the same work on another server.
Status WritePrompts(const ServeSettings& settings, const Workload& workload, TextMaker& texts) {
  std::string lines;
  const auto add = [&](const Workload& source, size_t index, bool is_warm_up) -> Status {
    const PlannedRequest& request = source.requests[index];
    ordered_json after = ordered_json::array();
    for (const Trigger& trigger : request.after) {
      after.push_back({{"request", trigger.request}, {"tokens", trigger.num_tokens}});
    }
    KVERN_ASSIGN_OR_RETURN(ordered_json pieces, PiecesOf(source, index, texts));
    lines += ordered_json{{"warm_up", is_warm_up},
                          {"after", std::move(after)},
                          {"delay_us", request.delay_us},
                          {"new_tokens", request.new_tokens},
                          {"prompt", std::move(pieces)}}
                 .dump() +
             "\n";
    return {};
  };
  for (const PromptParts& shared : workload.shared) {
    KVERN_RETURN_IF_ERROR(add({.requests = {{.prompt = shared, .new_tokens = 1}}}, 0, true));
  }
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    KVERN_RETURN_IF_ERROR(add(workload, i, false));
  }
  return WriteTextFile(settings.prompts_file, lines);
}

Status WriteChart(const ServeSettings& settings, const Workload& workload, const ServeRun& run) {
  if (settings.svg_file.empty()) return {};
  if (settings.draws_kv && run.view == EngineView::kNothing) {
    return Errorf(ErrorCode::kUnsupported,
                  "--chart kv: the server does not tell its KV memory: take latency");
  }
  const std::string title = settings.workload + ": " + workload.description;
  return WriteTextFile(settings.svg_file,
                       settings.draws_kv ? DrawKvStates(run, title) : DrawLatencies(run, title));
}

std::string CompareText(const ServeSummary& on, const ServeSummary& off) {
  std::string text = fmt::format(
      "\nwithout the prefix cache: {:.2f} s, {:.1f} t/s generated, TTFT p50 {:.0f} ms, p99 {:.0f} "
      "ms",
      off.seconds, off.output_rate(), off.ttft_us.p50 / 1000, off.ttft_us.p99 / 1000);
  if (on.view != EngineView::kNothing) {
    text += fmt::format(
        ", {} tokens of prompts computed\nscheduling and commit took {:.3f} % of the steps' CPU "
        "time, without it {:.3f} %",
        off.engine.prefilled_tokens, 100 * OverheadShare(on.engine),
        100 * OverheadShare(off.engine));
  }
  return text +
         fmt::format("\nwith it {:.2f} times the speed\n", on.output_rate() / off.output_rate());
}

void Print(const std::string& text, const ordered_json& json, bool as_json) {
  if (as_json) {
    PrintJson(json);
  } else {
    PrintNow(text);
  }
}

// A run that lost requests or an answer is no measurement.
Status CheckRun(const ServeSummary& summary, const ServeRun& run) {
  const EngineStats& stats = summary.engine;
  if (stats.self_check_failures + stats.kv.one_answer_violations > 0) {
    return Errorf(ErrorCode::kCorrupt,
                  "{} self checks and {} merged blocks differed: check the memory",
                  stats.self_check_failures, stats.kv.one_answer_violations);
  }
  if (summary.num_failed == 0) return {};
  for (const RequestRecord& record : run.records) {
    if (record.outcome != Outcome::kFailed) continue;
    return Errorf(ErrorCode::kIo, "{} requests failed, the first with: {}", summary.num_failed,
                  record.error);
  }
  return {};
}

}  // namespace

Status MeasureWorkload(const ServeSettings& settings, const Workload& workload) {
  KVERN_ASSIGN_OR_RETURN(Opened opened, Open(settings, settings.engine));
  if (!settings.prompts_file.empty()) {
    KVERN_RETURN_IF_ERROR(WritePrompts(settings, workload, *opened.texts));
  }
  if (settings.warm) KVERN_RETURN_IF_ERROR(WarmUp(*opened.target, workload, *opened.texts));
  KVERN_ASSIGN_OR_RETURN(const ServeRun run, DriveWithProgress(workload, opened, settings.drive));
  const ServeReport report = ReportOf(settings, workload, opened, run);
  std::string text = ToText(report);
  ordered_json json = ToJson(report);
  if (settings.check) {
    KVERN_ASSIGN_OR_RETURN(const size_t num_checked, CheckAnswers(workload, run, opened));
    text +=
        fmt::format("\nanswers       {} asked again alone, without the cache: the same tokens{}\n",
                    num_checked, settings.server ? "" : " and logprobs");
    json["answers_checked"] = num_checked;
  }
  if (settings.compare_off) {
    opened = {};
    KVERN_ASSIGN_OR_RETURN(opened, Open(settings, settings.engine));
    DriveOptions off = settings.drive;
    off.use_cache = false;
    KVERN_ASSIGN_OR_RETURN(const ServeRun second, DriveWithProgress(workload, opened, off));
    const ServeReport without = ReportOf(settings, workload, opened, second);
    text += CompareText(report.summary, without.summary);
    json["without_cache"] = ToJson(without);
    json["speedup"] = report.summary.output_rate() / without.summary.output_rate();
  }
  Print(text, json, settings.json);
  KVERN_RETURN_IF_ERROR(WriteChart(settings, workload, run));
  return CheckRun(report.summary, run);
}

Status MeasureMixedPrefill(const ServeSettings& settings, const Workload& workload) {
  if (!settings.svg_file.empty() || settings.compare_off || settings.warm || settings.check) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--svg, --compare, --warm and --check: not for mixed-prefill, which runs three "
                  "times without the cache");
  }
  const std::vector<double> factors =
      settings.server ? std::vector<double>{0} : std::vector<double>{0, 2.5, 4};
  std::string text = fmt::format("{}: {}\n\nms between tokens\n{}", settings.workload,
                                 workload.description, MixedPrefillHeader());
  ordered_json rows = ordered_json::array();
  double undisturbed_us = 0;
  for (const double factor : factors) {
    EngineOptions options = settings.engine;
    options.scheduler.target_token_us = static_cast<int64_t>(factor * undisturbed_us);
    KVERN_ASSIGN_OR_RETURN(Opened opened, Open(settings, options));
    if (factor == 0 && !settings.prompts_file.empty()) {
      KVERN_RETURN_IF_ERROR(WritePrompts(settings, workload, *opened.texts));
    }
    KVERN_ASSIGN_OR_RETURN(const ServeRun run, DriveWithProgress(workload, opened, settings.drive));
    KVERN_RETURN_IF_ERROR(CheckRun(Summarize(run, settings.level), run));
    const MixedPrefillRow row{
        .setting = settings.server ? "as the server runs"
                   : factor == 0   ? fmt::format("{} tokens a step", options.scheduler.step_tokens)
                                   : fmt::format("{:g} × undisturbed p99", factor),
        .target_us = options.scheduler.target_token_us,
        .result = JudgeMixedPrefill(workload, run)};
    if (factor == 0) undisturbed_us = row.result.undisturbed_us.p99;
    text += ToText(row);
    rows.push_back(ToJson(row));
  }
  Print(
      text,
      {{"workload", settings.workload}, {"description", workload.description}, {"settings", rows}},
      settings.json);
  return {};
}

}  // namespace kvern::cli
