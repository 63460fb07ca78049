// One answer on real models: the logits of every step are the same bytes with and without a cache,
// for strategies, K and V dtypes, prefill chunks and threads.
//
//   one_answer MODEL...
//
// A sequence is prefilled in chunks and then grows by one token a step, as in a generation, though
// its tokens are given. Whoever keeps no cache computes the whole history in each step. All is
// compared with one pass over the finished sequence. KVERN_FULL=1 in the environment asks for every
// combination instead of eight. Exits 1 if a bit differs.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/exec/open.h"
#include "kv/strategy.h"

namespace kvern {
namespace {

using compute::KvDtype;
using engine::OpenedModel;

constexpr size_t kPrefill = 140, kDecode = 6, kLength = kPrefill + kDecode;
constexpr std::string_view kText =
    "A quern is a stone mill that people turned by hand long before there were wind and water "
    "mills. The lower stone lies still; the upper one has a hole in its middle, through which the "
    "grain falls, and a peg by which it is turned. The flour comes out at the rim. Querns have "
    "been found in nearly every place where grain was grown, and in many houses the first sound "
    "of the day was that of stone on stone. ";

using Logits = std::vector<float>;

struct Row {
  std::string_view strategy;
  KvDtype k, v;
  size_t chunk;
  size_t num_threads;
};

// Eight of the combinations: every value of each column, most pairs of two columns.
constexpr Row kSample[] = {
    {"paged", KvDtype::kF16, KvDtype::kF16, 7, 2},
    {"paged", KvDtype::kF32, KvDtype::kBf16, 512, 1},
    {"dynamic", KvDtype::kBf16, KvDtype::kF16, 16, 1},
    {"dynamic", KvDtype::kF16, KvDtype::kF32, 100, 2},
    {"static", KvDtype::kF32, KvDtype::kF16, 1, 2},
    {"static", KvDtype::kBf16, KvDtype::kF32, 7, 1},
    {"none", KvDtype::kF16, KvDtype::kBf16, 512, 1},
    {"none", KvDtype::kF32, KvDtype::kF32, 16, 2},
};

std::vector<Row> Rows() {
  const char* full = std::getenv("KVERN_FULL");
  if (full == nullptr || std::string_view(full) != "1") {
    return {std::begin(kSample), std::end(kSample)};
  }
  std::vector<Row> rows;
  for (const kv::Strategy& strategy : kv::Strategies()) {
    for (const compute::KvDtypeTraits& k : compute::KvDtypes()) {
      for (const compute::KvDtypeTraits& v : compute::KvDtypes()) {
        for (const size_t chunk : {1u, 7u, 16u, 100u, 512u}) {
          for (const size_t threads : {1u, 2u}) {
            rows.push_back({strategy.name, k.dtype, v.dtype, chunk, threads});
          }
        }
      }
    }
  }
  return rows;
}

Result<OpenedModel> OpenFor(const std::string& path, const Row& row) {
  engine::OpenOptions options;
  options.path = path;
  options.context = kLength;
  options.num_threads = row.num_threads;
  options.k_dtype = row.k;
  options.v_dtype = row.v;
  return OpenedModel::Open(options);
}

std::vector<TokenId> MakeTokens(const text::Tokenizer& tokenizer) {
  std::vector<TokenId> tokens;
  while (tokens.size() < kLength) {
    const auto more = tokenizer.Encode(kText, {});
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  tokens.resize(kLength);
  return tokens;
}

// Appends `tokens` in steps of `chunk`. Logits of the last `num_wanted` go to `out`.
Status Append(OpenedModel& model, kv::SequenceCache& cache, std::span<const TokenId> tokens,
              size_t chunk, Logits& out, size_t num_wanted) {
  const size_t first_wanted = tokens.size() - num_wanted;
  for (size_t done = 0; done < tokens.size(); done += chunk) {
    const auto step = tokens.subspan(done, std::min(chunk, tokens.size() - done));
    const size_t end = done + step.size();
    const auto first = static_cast<uint32_t>(cache.length());
    KVERN_RETURN_IF_ERROR(cache.Extend(step.size()));
    const PagedView view = cache.View();
    engine::StepPlan plan;
    plan.slices.push_back(
        {.tokens = step,
         .first_position = first,
         .views = {&view, 1},
         .num_logits = static_cast<uint32_t>(end - std::clamp(first_wanted, done, end))});
    KVERN_ASSIGN_OR_RETURN(const auto outputs, model.executor().Execute(plan));
    KVERN_RETURN_IF_ERROR(outputs[0].status);
    for (const auto& row : outputs[0].logits) out.insert(out.end(), row.begin(), row.end());
  }
  return {};
}

// Logits of all positions, as a generation with this row's strategy computes them.
Result<Logits> Generate(OpenedModel& model, const Row& row, std::span<const TokenId> tokens) {
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* strategy, kv::FindStrategy(row.strategy));
  const auto cache = strategy->make(
      {.pool = &model.pool(), .group = {}, .max_tokens = tokens.size(), .on_event = {}});
  Logits logits;
  KVERN_RETURN_IF_ERROR(Append(model, *cache, tokens.first(kPrefill), row.chunk, logits, kPrefill));
  for (size_t end = kPrefill + 1; end <= tokens.size(); ++end) {
    if (strategy->recomputes_history) cache->Truncate(0);
    const auto due = tokens.first(end).subspan(cache->length());
    KVERN_RETURN_IF_ERROR(Append(model, *cache, due, row.chunk, logits, 1));
  }
  return logits;
}

Result<Logits> OnePass(OpenedModel& model, std::span<const TokenId> tokens) {
  const auto cache = kv::Strategies().front().make(
      {.pool = &model.pool(), .group = {}, .max_tokens = tokens.size(), .on_event = {}});
  Logits logits;
  KVERN_RETURN_IF_ERROR(Append(model, *cache, tokens, tokens.size(), logits, tokens.size()));
  return logits;
}

// Runs all rows on one model; returns how many differ.
Result<int> CheckModel(const std::string& path) {
  std::map<std::pair<KvDtype, KvDtype>, Logits> references;
  int num_wrong = 0;
  for (const Row& row : Rows()) {
    KVERN_ASSIGN_OR_RETURN(OpenedModel model, OpenFor(path, row));
    const std::vector<TokenId> tokens = MakeTokens(model.tokenizer());
    Logits& expected = references[{row.k, row.v}];
    if (expected.empty()) {
      KVERN_ASSIGN_OR_RETURN(expected, OnePass(model, tokens));
    }
    KVERN_ASSIGN_OR_RETURN(const Logits logits, Generate(model, row, tokens));
    const bool same = logits.size() == expected.size() &&
                      std::memcmp(logits.data(), expected.data(), logits.size() * 4) == 0;
    if (!same) ++num_wrong;
    fmt::print("{:8} K {:4} V {:4} chunks of {:3}, {} threads: {}\n", row.strategy,
               compute::GetKvDtype(row.k).name, compute::GetKvDtype(row.v).name, row.chunk,
               row.num_threads, same ? "same bits" : "DIFFERENT");
  }
  return num_wrong;
}

int Main(std::span<char* const> paths) {
  int num_wrong = 0;
  for (const std::string path : paths) {
    fmt::print("{}\n", path);
    const auto wrong = CheckModel(path);
    if (!wrong.ok()) {
      fmt::print(stderr, "one_answer: {}\n", wrong.error().message);
      return 1;
    }
    num_wrong += *wrong;
  }
  return num_wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kvern

int main(int argc, char** argv) { return kvern::Main({argv + 1, static_cast<size_t>(argc - 1)}); }
