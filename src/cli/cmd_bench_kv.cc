// kvern bench kv: types of K and V beside each other, in memory, speed and what they lose.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/memory_info.h"
#include "cli/bench_flags.h"
#include "cli/bench_kv_cases.h"
#include "cli/bench_kv_model.h"
#include "cli/bench_kv_quality.h"
#include "cli/bench_kv_report.h"
#include "cli/byte_size.h"
#include "cli/default_model.h"
#include "cli/json_output.h"
#include "cli/text_chunks.h"
#include "model/arch/architecture.h"
#include "model/vocab_loader.h"

namespace kvern::cli {
namespace {

constexpr std::string_view kParts[] = {"memory", "attention", "store", "steps", "quality"};
constexpr const char* kPartNames = "memory, attention, store, steps, quality";
constexpr CountRange kStepRange = {.low = 1, .high = 1 << 16};

struct KvFlags {
  std::string model;
  std::string isa = "auto";
  uint32_t threads = DefaultThreads();
  uint32_t batch = 512;
  std::vector<std::string> types = {"f16", "bf16", "q8r", "q4r"};
  std::vector<std::string> only;  // none: all parts
  std::string memory = "1GiB";
  CountList depths = {"0,2048,8192"};
  uint32_t num_prompt = 512;
  uint32_t num_new = 32;
  uint32_t num_sequences = 32;
  uint32_t prefix = 2048;
  uint32_t rounds = 5;
  std::string text_file;
  uint32_t chunk = 512;
  std::string json_file;
  std::string svg_file;

  bool Wants(const std::string& part) const {
    return only.empty() || std::ranges::find(only, part) != only.end();
  }
};

// What the flags ask for, checked.
struct KvPlan {
  std::vector<KvTypes> types;
  size_t memory_bytes;
  KvCaseOptions cases;
  const compute::Isa* isa;
};

Status CheckCount(const char* flag, uint32_t value, CountRange range) {
  if (value >= range.low && value <= range.high) return {};
  return Errorf(ErrorCode::kInvalidArgument, "{}: {} is outside {} … {}", flag, value, range.low,
                range.high);
}

Status CheckFlags(const KvFlags& flags) {
  KVERN_RETURN_IF_ERROR(CheckCount("-t", flags.threads, kThreadRange));
  KVERN_RETURN_IF_ERROR(CheckCount("-b", flags.batch, kStepRange));
  KVERN_RETURN_IF_ERROR(CheckCount("-p", flags.num_prompt, kStepRange));
  KVERN_RETURN_IF_ERROR(CheckCount("-n", flags.num_new, kStepRange));
  KVERN_RETURN_IF_ERROR(CheckCount("-r", flags.rounds, {.low = 1, .high = 1000}));
  KVERN_RETURN_IF_ERROR(CheckCount("--chunk", flags.chunk, {.low = 2, .high = kTokenRange.high}));
  KVERN_RETURN_IF_ERROR(
      CheckCount("--sequences", flags.num_sequences, {.low = 1, .high = flags.batch}));
  KVERN_RETURN_IF_ERROR(
      CheckCount("--prefix", flags.prefix, {.low = kChunkTokens, .high = kTokenRange.high}));
  if (flags.prefix % kChunkTokens != 0) {
    return FlagError(fmt::format("--prefix: {} is no multiple of {}, the tokens of a KV chunk",
                                 flags.prefix, kChunkTokens));
  }
  for (const std::string& part : flags.only) {
    if (std::ranges::find(kParts, part) != std::end(kParts)) continue;
    return FlagError(fmt::format("--only: '{}' is none of {}", part, kPartNames));
  }
  if (!flags.svg_file.empty() && !flags.Wants("steps")) {
    return FlagError("--svg: draws decoding by depth: measure steps too (--only)");
  }
  if (flags.text_file.empty() && !flags.only.empty() && flags.Wants("quality")) {
    return FlagError("--only: quality is measured on a text: give one by -f");
  }
  return {};
}

// Depths beyond the model's context become the deepest that it has room for.
Status PlanDepths(const KvFlags& flags, uint32_t context, std::vector<uint32_t>& depths) {
  KVERN_ASSIGN_OR_RETURN(const auto wanted, ParseCounts("--depths", flags.depths, kTokenRange));
  const uint32_t growth = std::max(flags.num_prompt, flags.num_new);
  if (growth > context) {
    return FlagError(
        fmt::format("-p, -n: {} tokens exceed the model's context of {}", growth, context));
  }
  if (flags.prefix + flags.num_new > context) {
    return FlagError(
        fmt::format("--prefix: {} tokens and {} new ones exceed the model's context of {}",
                    flags.prefix, flags.num_new, context));
  }
  for (const uint32_t depth : wanted) depths.push_back(std::min(depth, context - growth));
  std::ranges::sort(depths);
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  return {};
}

Result<KvPlan> MakePlan(const KvFlags& flags, uint32_t context) {
  KvPlan plan = {.types = {},
                 .memory_bytes = 0,
                 .cases = {.depths = {},
                           .num_prompt = flags.num_prompt,
                           .num_new = flags.num_new,
                           .num_sequences = flags.num_sequences,
                           .prefix = flags.prefix},
                 .isa = nullptr};
  KVERN_ASSIGN_OR_RETURN(plan.types, ParseKvTypes("--types", flags.types));
  KVERN_ASSIGN_OR_RETURN(plan.memory_bytes, ParseByteSize("--memory", flags.memory));
  KVERN_ASSIGN_OR_RETURN(plan.isa, compute::SelectIsa(flags.isa));
  if (flags.Wants("steps")) {
    KVERN_RETURN_IF_ERROR(PlanDepths(flags, context, plan.cases.depths));
  }
  return plan;
}

// One type's rows are held at a time.
Status CheckMemory(const KvPlan& plan, const std::vector<KvRig>& rigs) {
  const auto memory = ReadMemoryInfo();
  if (!memory.ok()) return {};
  size_t needed = 0;
  for (const KvRig& rig : rigs) {
    needed = std::max(needed, MostStepBlocks(plan.cases) * rig.layout.block_bytes());
  }
  if (needed <= memory->available_bytes) return {};
  return Errorf(ErrorCode::kOutOfMemory,
                "K and V of {} sequences of {} tokens need {} MiB, but {} MiB of memory are "
                "available: lower --sequences, --prefix or --depths",
                plan.cases.num_sequences, plan.cases.prefix, needed >> 20,
                memory->available_bytes >> 20);
}

class KvBench {
 public:
  KvBench(const KvFlags& flags, const KvPlan& plan, const model::Gguf& gguf)
      : flags_(flags),
        plan_(plan),
        gguf_(gguf),
        report_(plan.types,
                {{"model_filename", gguf.path()},
                 {"isa", plan.isa->name},
                 {"threads", flags.threads},
                 {"rounds", flags.rounds}},
                PrintNow) {}

  Status Run(uint32_t context) {
    // Read first: a text that is missing should not cost a measurement.
    if (flags_.Wants("quality") && !flags_.text_file.empty()) KVERN_RETURN_IF_ERROR(ReadText());
    KVERN_ASSIGN_OR_RETURN(model_, KvBenchModel::Load(gguf_, {.isa = plan_.isa,
                                                              .num_threads = flags_.threads,
                                                              .context = context,
                                                              .max_step_tokens = flags_.batch}));
    for (const KvTypes& types : plan_.types) {
      KVERN_ASSIGN_OR_RETURN(KvRig rig, model_->MakeRig(types));
      rigs_.push_back(std::move(rig));
    }
    if (flags_.Wants("steps")) KVERN_RETURN_IF_ERROR(CheckMemory(plan_, rigs_));
    if (flags_.Wants("memory")) AddSizes();
    if (flags_.Wants("attention")) {
      KVERN_ASSIGN_OR_RETURN(const auto cases, AttentionCases(*model_, rigs_, plan_.cases));
      KVERN_RETURN_IF_ERROR(Time(cases));
    }
    if (flags_.Wants("store")) {
      KVERN_ASSIGN_OR_RETURN(const auto cases, StoreCases(*model_, rigs_));
      KVERN_RETURN_IF_ERROR(Time(cases));
    }
    if (flags_.Wants("steps")) KVERN_RETURN_IF_ERROR(Time(StepCases(rigs_, plan_.cases)));
    if (flags_.Wants("quality")) KVERN_RETURN_IF_ERROR(AddQuality());
    return Write();
  }

 private:
  Status ReadText() {
    KVERN_ASSIGN_OR_RETURN(const auto tokenizer, model::LoadTokenizer(gguf_));
    KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags_.text_file));
    chunks_ = CutText(*tokenizer, text, flags_.chunk);
    if (!chunks_.empty()) return {};
    return FlagError(
        fmt::format("{}: nothing to score: give at least two tokens of text", flags_.text_file));
  }

  void AddSizes() {
    std::vector<KvSize> sizes;
    for (const KvRig& rig : rigs_) sizes.push_back(SizeOf(rig.layout, plan_.memory_bytes));
    report_.AddSizes(sizes, plan_.memory_bytes);
  }

  Status Time(const std::vector<KvCase>& cases) {
    for (const KvCase& kv_case : cases) {
      KVERN_ASSIGN_OR_RETURN(const auto timings, TimeCase(kv_case, rigs_.size(), flags_.rounds));
      report_.AddTimings(kv_case, timings);
    }
    return {};
  }

  Status AddQuality() {
    if (chunks_.empty()) {
      fmt::print("\nQuality was not measured: give a text by -f FILE.\n");
      return {};
    }
    KVERN_ASSIGN_OR_RETURN(const KvQualities qualities, MeasureKvQuality(*model_, rigs_, chunks_));
    report_.AddQualities(qualities);
    fmt::print(
        "\nQuality over {} positions, the second half of each of {} chunks; ± is the standard "
        "error "
        "by chunks.\nf32 is this program with K and V as computed, on the same weights: no "
        "independent implementation\n(tests/oracle has one), and with quantised weights no truth "
        "either (docs/kv-dtypes.md).\n",
        qualities.num_positions, qualities.num_chunks);
    return {};
  }

  Status Write() const {
    if (!flags_.json_file.empty()) {
      KVERN_RETURN_IF_ERROR(WriteTextFile(flags_.json_file, ToJsonText(report_.document())));
    }
    if (flags_.svg_file.empty()) return {};
    return WriteTextFile(flags_.svg_file, report_.DrawDecoding());
  }

  const KvFlags& flags_;
  const KvPlan& plan_;
  const model::Gguf& gguf_;
  std::vector<std::vector<TokenId>> chunks_;
  std::unique_ptr<KvBenchModel> model_;
  std::vector<KvRig> rigs_;
  KvReport report_;
};

Status BenchKv(const KvFlags& flags) {
  KVERN_RETURN_IF_ERROR(CheckFlags(flags));
  KVERN_ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model));
  KVERN_ASSIGN_OR_RETURN(const model::Gguf gguf, model::Gguf::Open(path));
  KVERN_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ReadConfig(gguf));
  KVERN_ASSIGN_OR_RETURN(const KvPlan plan, MakePlan(flags, config.trained_context));
  return KvBench(flags, plan, gguf).Run(config.trained_context);
}

void AddShapeFlags(CLI::App& app, KvFlags& flags) {
  AddCountsFlag(
      app, "--depths", flags.depths,
      "Tokens before a prompt and before new tokens, at most what the model has room for");
  app.add_option("-p,--n-prompt", flags.num_prompt, "Tokens of a prompt")->capture_default_str();
  app.add_option("-n,--n-gen", flags.num_new, "New tokens of each sequence")->capture_default_str();
  app.add_option("--sequences", flags.num_sequences, "Sequences of a batch")->capture_default_str();
  app.add_option("--prefix", flags.prefix,
                 "Tokens before each sequence of a batch, its own or shared by all")
      ->capture_default_str();
}

}  // namespace

Action DeclareBenchKv(CLI::App& app) {
  const auto flags = std::make_shared<KvFlags>();
  app.add_option("-m,--model", flags->model, "Model file (default: the fetched model)");
  app.add_option("--types", flags->types,
                 "Types to compare with f16, as -ctk and -ctv have them; K/V where they differ")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
  app.add_option("--only", flags->only, std::string("Parts: ") + kPartNames)
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--memory", flags->memory, "Memory whose capacity in tokens is told")
      ->capture_default_str();
  AddShapeFlags(app, *flags);
  app.add_option("-f,--file", flags->text_file, "File with a text, for quality");
  app.add_option("--chunk", flags->chunk, "Tokens that each chunk of the text has")
      ->capture_default_str();
  app.add_option("-t,--threads", flags->threads, "Threads")->capture_default_str();
  app.add_option("-b,--batch-size", flags->batch, "Prompt tokens computed per step")
      ->capture_default_str();
  app.add_option("--isa", flags->isa, "Instruction set of the kernels")->capture_default_str();
  app.add_option("-r,--rounds", flags->rounds,
                 "Rounds in which the types take turns; the median counts")
      ->capture_default_str();
  app.add_option("--json", flags->json_file, "File for all figures");
  app.add_option("--svg", flags->svg_file, "SVG file for a chart of decoding by depth");
  return [flags] { return BenchKv(*flags); };
}

}  // namespace kvern::cli
