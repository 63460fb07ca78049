// kvern batch: answers a file of requests, and goes on where it was stopped.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"
#include "cli/batch_engine.h"
#include "cli/batch_progress.h"
#include "cli/batch_run.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/line_source.h"
#include "engine/policy.h"
#include "engine/service.h"
#include "engine/spec/table.h"
#include "kvern/engine.h"
#include "server/api/model_text.h"

namespace kvern::cli {
namespace {

constexpr size_t kMaxRunning = 4096;

struct BatchFlags {
  std::string input;
  std::string output;
  EngineFlags engine;
  std::optional<size_t> kv_tokens;
  SchedulerOptions scheduler;
  SpeculationOptions speculation;
};

Result<EngineOptions> OptionsOf(const BatchFlags& flags) {
  for (const std::string& path : {flags.input, flags.output}) {
    if (path != "-") continue;
    return Errorf(ErrorCode::kInvalidArgument,
                  "-: a batch reads its input twice and goes on from its output: name files");
  }
  if (flags.scheduler.max_running < 1 || flags.scheduler.max_running > kMaxRunning) {
    return Errorf(ErrorCode::kInvalidArgument, "--max-running: {} is outside 1 … {}",
                  flags.scheduler.max_running, kMaxRunning);
  }
  EngineOptions options{.scheduler = flags.scheduler, .speculation = flags.speculation};
  KVERN_RETURN_IF_ERROR(SetEngineOptions(flags.engine, options));
  options.model.kv_tokens = flags.kv_tokens;
  // Enough that the next is there when one ends, and none is refused because others wait.
  options.scheduler.max_waiting = 2 * options.scheduler.max_running;
  return options;
}

std::string PolicyNames() {
  std::string names;
  for (const auto* policy : engine::SchedulingPolicies()) {
    names.append(names.empty() ? "" : ", ").append(policy->name);
  }
  return names;
}

std::string ProposerNames() {
  std::string names;
  for (const auto& row : engine::Proposers()) {
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return names;
}

std::string DrawIdPrefix() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

int64_t UnixTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::unique_ptr<server::ModelText> TextOf(const Engine& engine) {
  std::optional<text::ChatTemplate> chat_template;
  if (const auto& own = EngineAccess::ChatTemplateOf(engine); own.ok()) chat_template = *own;
  return server::MakeModelText(*EngineAccess::TokenizerOf(engine), std::move(chat_template));
}

// Until the end, or Ctrl-C.
Result<BatchFigures> Answer(BatchFiles files, const EngineOptions& options, const Clock& clock) {
  KVERN_ASSIGN_OR_RETURN(const auto engine, Engine::Open(options));
  const auto text = TextOf(*engine);
  const server::ModelInfo model = {
      .text = text.get(), .context = engine->context(), .fingerprint = engine->fingerprint()};
  const ScopedInterrupts interrupts;
  BatchProgress progress(clock);
  EngineAnswerer answerer(*engine);
  return RunBatch(std::move(files),
                  {.max_in_flight = options.scheduler.max_waiting,
                   .id_prefix = DrawIdPrefix(),
                   .unix_time_s = UnixTime,
                   .on_change = [&](const BatchFigures& now) { progress.Show(now); }},
                  model, answerer, ScopedInterrupts::requested());
}

Status Batch(const BatchFlags& flags) {
  const SteadyClock clock;
  const int64_t start_us = clock.now_us();
  KVERN_ASSIGN_OR_RETURN(const EngineOptions options, OptionsOf(flags));
  KVERN_ASSIGN_OR_RETURN(BatchFiles files, OpenBatchFiles(flags.input, flags.output, clock));
  BatchFigures figures = {.num_requests = files.num_requests, .num_kept = files.num_requests};
  if (!files.IsDone()) {
    KVERN_ASSIGN_OR_RETURN(figures, Answer(std::move(files), options, clock));
  }
  fmt::print("{}", FormatBatchSummary(figures, clock.now_us() - start_us));
  if (!figures.was_stopped) return {};
  return Errorf(ErrorCode::kIo,
                "interrupted with {} of {} requests answered: run it again to go on",
                figures.num_kept + figures.num_done, figures.num_requests);
}

}  // namespace

Action DeclareBatch(CLI::App& app) {
  const auto flags = std::make_shared<BatchFlags>();
  app.add_option("input", flags->input, "Requests, one a line, as for OpenAI's batches")
      ->required();
  app.add_option("output", flags->output, "Where replies go; what it has already is kept")
      ->required();
  app.add_option("-m,--model", flags->engine.model, "Model file (default: the fetched model)");
  app.add_option("-c,--ctx-size", flags->engine.context,
                 "Context in tokens; 0 is what the model was trained on (default: 4096, or that "
                 "if it is less)");
  app.add_option("-t,--threads", flags->engine.threads, "Threads (default: one per core)");
  AddComputeFlags(app, flags->engine);
  app.add_option("--kv-tokens", flags->kv_tokens,
                 "Tokens that the KV cache has room for (default: four contexts)");
  SchedulerOptions& scheduler = flags->scheduler;
  app.add_option("--max-running", scheduler.max_running, "Sequences that are computed at once")
      ->capture_default_str();
  app.add_option("--policy", scheduler.policy, "Who is next: " + PolicyNames())
      ->capture_default_str();
  SpeculationOptions& speculation = flags->speculation;
  app.add_option("--speculation", speculation.proposer, "Who drafts tokens: " + ProposerNames())
      ->capture_default_str();
  app.add_option("--draft-max", speculation.max_draft, "Tokens drafted per step")
      ->capture_default_str();
  app.add_option("--model-draft", speculation.draft_model,
                 "Model file that drafts, for --speculation draft (short: -md)");
  return [flags] { return Batch(*flags); };
}

}  // namespace kvern::cli
