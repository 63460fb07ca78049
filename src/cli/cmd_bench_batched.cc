// kvern bench batched: many sequences at once, in the words of llama-batched-bench's users.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_batched.h"
#include "cli/bench_flags.h"
#include "cli/bench_memory.h"
#include "cli/bench_table.h"
#include "cli/engine_flags.h"
#include "cli/reply_stats.h"

namespace kvern::cli {
namespace {

struct BatchedFlags {
  EngineFlags engine;
  CountList prompts = {"512"};
  CountList gens = {"128"};
  CountList sequences = {"1,2,4,8"};
  bool shared_prefix = false;
  std::string format = "md";
};

constexpr CountRange kLengthRange = {.low = 1, .high = kTokenRange.high};
constexpr CountRange kSequencesRange = {.low = 1, .high = 4096};

Result<std::vector<BatchedTest>> PlanTests(const BatchedFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const auto prompts, ParseCounts("-npp", flags.prompts, kLengthRange));
  KVERN_ASSIGN_OR_RETURN(const auto gens, ParseCounts("-ntg", flags.gens, kLengthRange));
  KVERN_ASSIGN_OR_RETURN(const auto sequences,
                         ParseCounts("-npl", flags.sequences, kSequencesRange));
  std::vector<BatchedTest> tests;
  for (const uint32_t prompt : prompts) {
    for (const uint32_t gen : gens) {
      for (const uint32_t count : sequences) {
        tests.push_back({prompt, gen, count, flags.shared_prefix});
      }
    }
  }
  const uint32_t most = *std::max_element(sequences.begin(), sequences.end());
  if (most > flags.engine.batch) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "-npl: {} sequences do not fit into a step of {} tokens: raise -b", most,
                  flags.engine.batch);
  }
  return tests;
}

Result<engine::OpenedModel> OpenFor(const EngineFlags& flags,
                                    const std::vector<BatchedTest>& tests) {
  KVERN_ASSIGN_OR_RETURN(engine::OpenOptions options, OptionsFromFlags(flags));
  uint32_t context = 0;
  size_t pool_tokens = 0;
  for (const BatchedTest& test : tests) {
    context = std::max(context, test.num_prompt + test.num_gen);
    pool_tokens = std::max(pool_tokens, PoolTokens(test));
  }
  options.context = context;
  options.pool_tokens = pool_tokens;
  return OpenWithProgress(std::move(options));
}

std::vector<BenchColumn> Columns() {
  return {{.title = "PP", .width = 6},      {.title = "TG", .width = 6},
          {.title = "B", .width = 4},       {.title = "N_KV", .width = 6},
          {.title = "T_PP s", .width = 8},  {.title = "S_PP t/s", .width = 8},
          {.title = "T_TG s", .width = 8},  {.title = "S_TG t/s", .width = 8},
          {.title = "T s", .width = 8},     {.title = "S t/s", .width = 8},
          {.title = "KV held", .width = 10}};
}

void AddRow(BenchTable& table, const engine::OpenedModel& model, const BatchedTest& test,
            const BatchedResult& result, nlohmann::ordered_json record) {
  const double seconds = result.prefill_seconds + result.decode_seconds;
  const double prefill_rate = test.num_prefill_tokens() / result.prefill_seconds;
  const double decode_rate = test.num_decode_tokens() / result.decode_seconds;
  const double rate = test.num_kv_tokens() / seconds;
  record.update({{"pp", test.num_prompt},
                 {"tg", test.num_gen},
                 {"pl", test.num_sequences},
                 {"n_kv", test.num_kv_tokens()},
                 {"t_pp", result.prefill_seconds},
                 {"speed_pp", prefill_rate},
                 {"t_tg", result.decode_seconds},
                 {"speed_tg", decode_rate},
                 {"t", seconds},
                 {"speed", rate},
                 {"kv_bytes", result.kv_bytes},
                 {"peak_rss_bytes", PeakMemoryBytes()},
                 {"isa", model.isa().name}});
  const auto fixed = [](int digits, double value) { return fmt::format("{:.{}f}", value, digits); };
  table.Add(
      std::vector<std::string>{
          std::to_string(test.num_prompt), std::to_string(test.num_gen),
          std::to_string(test.num_sequences), std::to_string(test.num_kv_tokens()),
          fixed(3, result.prefill_seconds), fixed(2, prefill_rate), fixed(3, result.decode_seconds),
          fixed(2, decode_rate), fixed(3, seconds), fixed(2, rate), FormatBytes(result.kv_bytes)},
      record);
}

Status BenchBatched(const BatchedFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const BenchFormat format, ParseBenchFormat(flags.format));
  KVERN_ASSIGN_OR_RETURN(const std::vector<BatchedTest> tests, PlanTests(flags));
  EngineFlags engine = flags.engine;
  if (!engine.threads) engine.threads = DefaultThreads();
  ResetPeakMemory();
  KVERN_ASSIGN_OR_RETURN(engine::OpenedModel model, OpenFor(engine, tests));
  const size_t pool_tokens = model.memory().kv_bytes / model.layout().token_bytes();
  const nlohmann::ordered_json settings = {{"model_filename", model.gguf().path()},
                                           {"n_kv_max", pool_tokens},
                                           {"n_batch", engine.batch},
                                           {"is_pp_shared", flags.shared_prefix ? 1 : 0},
                                           {"n_threads", *engine.threads},
                                           {"type_k", engine.k_dtype},
                                           {"type_v", engine.v_dtype}};
  BenchTable table(format, Columns(), PrintNow);
  for (const BatchedTest& test : tests) {
    KVERN_ASSIGN_OR_RETURN(const BatchedResult result, RunBatchedTest(model, test));
    AddRow(table, model, test, result, settings);
  }
  table.Finish();
  return {};
}

}  // namespace

Action DeclareBenchBatched(CLI::App& app) {
  const auto flags = std::make_shared<BatchedFlags>();
  app.add_option("-m,--model", flags->engine.model, "Model file (default: the fetched model)");
  AddCountsFlag(app, "--n-pp", flags->prompts, "Tokens of each prompt (short: -npp)");
  AddCountsFlag(app, "--n-tg", flags->gens, "New tokens of each sequence (short: -ntg)");
  AddCountsFlag(app, "--n-pl", flags->sequences, "Sequences at once (short: -npl)");
  app.add_flag("--shared-prefix", flags->shared_prefix,
               "One prompt for all, computed and held once (short: -pps)");
  app.add_option("-t,--threads", flags->engine.threads, "Threads (default: one per core)");
  AddComputeFlags(app, flags->engine);
  AddFormatFlag(app, flags->format);
  return [flags] { return BenchBatched(*flags); };
}

}  // namespace kvern::cli
