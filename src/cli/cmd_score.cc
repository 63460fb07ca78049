// kvern score: how well a model predicts a text, and the logits behind it.
//
// As perplexity tools do: the tokens are cut into chunks, each chunk starts afresh (with BOS in
// place of its first token where the model wants one), and its second half is scored.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/input_text.h"
#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/text_chunks.h"
#include "engine/scoring.h"

namespace kvern::cli {
namespace {

struct ScoreFlags {
  EngineFlags engine;
  InputText input;
  std::string ids_file;
  std::string logits_file;
  uint32_t chunk = 512;
  bool json = false;
};

using Tokens = std::vector<TokenId>;

struct Totals {
  double negative_log_likelihood = 0;
  size_t num_scored = 0;
  size_t num_tokens = 0;
  size_t num_chunks = 0;
  double seconds = 0;
};

// One chunk a line, ids separated by white space.
Result<std::vector<Tokens>> ReadIds(const std::string& path, size_t vocab_size) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::vector<Tokens> chunks;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Tokens tokens;
    for (std::string word; words >> word;) {
      uint32_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error != std::errc() || end != word.data() + word.size() || id >= vocab_size) {
        return Errorf(ErrorCode::kInvalidArgument, "{}: '{}' is not a token id below {}", path,
                      word, vocab_size);
      }
      tokens.push_back(TokenId{id});
    }
    if (!tokens.empty()) chunks.push_back(std::move(tokens));
  }
  return chunks;
}

Result<std::vector<Tokens>> ReadChunks(const ScoreFlags& flags, engine::OpenedModel& model) {
  std::vector<Tokens> chunks;
  if (!flags.ids_file.empty()) {
    KVERN_ASSIGN_OR_RETURN(chunks, ReadIds(flags.ids_file, model.config().vocab_size));
  } else {
    KVERN_ASSIGN_OR_RETURN(const std::string text, ReadInputText(flags.input));
    chunks = CutText(model.tokenizer(), text, flags.chunk);
  }
  for (const Tokens& chunk : chunks) {
    if (chunk.size() > model.context()) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "a chunk of {} tokens exceeds the context of {}: raise -c", chunk.size(),
                    model.context());
    }
  }
  if (!chunks.empty()) return chunks;
  return Errorf(ErrorCode::kInvalidArgument, "nothing to score: give at least two tokens of text");
}

double NegativeLogLikelihood(const compute::RowKernels& rows, std::span<const float> logits,
                             TokenId next) {
  return double{rows.log_sum_exp(logits.data(), logits.size())} -
         double{logits[static_cast<size_t>(next)]};
}

Result<Totals> ScoreChunks(const ScoreFlags& flags, engine::OpenedModel& model,
                           const std::vector<Tokens>& chunks) {
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* strategy, StrategyFromFlags(flags.engine));
  std::ofstream logits_file;
  if (!flags.logits_file.empty()) {
    logits_file.open(flags.logits_file, std::ios::binary | std::ios::trunc);
    if (!logits_file) {
      return Errorf(ErrorCode::kIo, "{}: cannot create: choose another --logits-out",
                    flags.logits_file);
    }
  }
  Totals totals;
  Progress progress("Scoring");
  const engine::GenerationOptions options = model.MakeGenerationOptions(*strategy);
  const auto start = std::chrono::steady_clock::now();
  for (const Tokens& chunk : chunks) {
    const auto cache = strategy->make(options.cache);
    const size_t first_scored = chunk.size() / 2;
    const auto on_logits = [&](size_t position, std::span<const float> logits) {
      if (logits_file.is_open()) {
        logits_file.write(reinterpret_cast<const char*>(logits.data()),
                          static_cast<std::streamsize>(logits.size_bytes()));
      }
      if (position < first_scored || position + 1 >= chunk.size()) return;
      totals.negative_log_likelihood +=
          NegativeLogLikelihood(*model.isa().rows, logits, chunk[position + 1]);
      ++totals.num_scored;
    };
    const engine::ScoringOptions scoring = {
        .chunk = options.prefill_chunk, .first_wanted = logits_file.is_open() ? 0 : first_scored};
    KVERN_RETURN_IF_ERROR(
        engine::ScoreTokens(&model.executor(), cache.get(), chunk, scoring, on_logits));
    totals.num_tokens += chunk.size();
    ++totals.num_chunks;
    progress.Update(static_cast<double>(totals.num_chunks) / static_cast<double>(chunks.size()));
  }
  totals.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  logits_file.flush();
  if (logits_file.is_open() && !logits_file) {
    return Errorf(ErrorCode::kIo, "{}: cannot write: is the disk full?", flags.logits_file);
  }
  return totals;
}

Status Score(const ScoreFlags& flags) {
  if (flags.chunk < 2) {
    return Errorf(ErrorCode::kInvalidArgument, "--chunk: {} is less than 2 tokens", flags.chunk);
  }
  KVERN_ASSIGN_OR_RETURN(engine::OpenedModel model, OpenFromFlags(flags.engine));
  KVERN_ASSIGN_OR_RETURN(const std::vector<Tokens> chunks, ReadChunks(flags, model));
  KVERN_ASSIGN_OR_RETURN(const Totals totals, ScoreChunks(flags, model, chunks));
  const double perplexity =
      std::exp(totals.negative_log_likelihood / static_cast<double>(totals.num_scored));
  const double rate = static_cast<double>(totals.num_tokens) / totals.seconds;
  if (flags.json) {
    PrintJson({{"perplexity", perplexity},
               {"scored_tokens", totals.num_scored},
               {"tokens", totals.num_tokens},
               {"chunks", totals.num_chunks},
               {"tokens_per_second", rate}});
  } else {
    fmt::print("perplexity {:.4f} over {} of {} tokens in {} chunks, {:.1f} t/s\n", perplexity,
               totals.num_scored, totals.num_tokens, totals.num_chunks, rate);
  }
  return {};
}

}  // namespace

Action DeclareScore(CLI::App& app) {
  const auto flags = std::make_shared<ScoreFlags>();
  AddEngineFlags(app, flags->engine);
  app.add_option("-p,--prompt", flags->input.prompt, "The text (default: standard input)");
  app.add_option("-f,--file", flags->input.file, "File with the text; - is standard input");
  app.add_option("--ids", flags->ids_file, "File with token ids instead: one chunk a line");
  app.add_option("--chunk", flags->chunk, "Tokens that each chunk of a text has")
      ->capture_default_str();
  app.add_option("--logits-out", flags->logits_file,
                 "File for the logits of all tokens: float32 [tokens][vocabulary]");
  app.add_flag("--json", flags->json, "Print JSON");
  return [flags] { return Score(*flags); };
}

}  // namespace kvern::cli
