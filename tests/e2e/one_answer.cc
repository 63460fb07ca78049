// One answer on real models: the logits of every step are the same bytes with and without a cache,
// for strategies, K and V dtypes, prefill chunks, threads, instruction sets and whatever else is in
// the batch.
//
//   one_answer MODEL...
//
// A sequence is prefilled in chunks and then grows by one token a step, as in a generation, though
// its tokens are given. Whoever keeps no cache computes the whole history in each step. Then
// several sequences run together, as a server has them: each joins at a step of its own, behind a
// common prefix that is shared or private. All is compared with one pass over each finished
// sequence alone. KVERN_FULL=1 in the environment asks for every combination instead of eight of
// either kind. Exits 1 if a bit differs.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/isa.h"
#include "engine/exec/open.h"
#include "kv/strategy.h"
#include "kvern/paged_view.h"

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

bool IsFull() {
  const char* full = std::getenv("KVERN_FULL");
  return full != nullptr && std::string_view(full) == "1";
}

std::vector<Row> Rows() {
  if (!IsFull()) return {std::begin(kSample), std::end(kSample)};
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

std::vector<TokenId> MakeTokens(const text::Tokenizer& tokenizer, size_t length = kLength) {
  std::vector<TokenId> tokens;
  while (tokens.size() < length) {
    const auto more = tokenizer.Encode(kText, {});
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  tokens.resize(length);
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
  const auto cache = strategy->make(model.MakeCacheOptions());
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
  const auto cache = kv::Strategies().front().make(model.MakeCacheOptions());
  Logits logits;
  KVERN_RETURN_IF_ERROR(Append(model, *cache, tokens, tokens.size(), logits, tokens.size()));
  return logits;
}

// Runs all rows on one model; returns how many differ.
Result<int> CheckSequences(const std::string& path) {
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

// One sequence of a batch: the step at which it joins, and what it computes behind the prefix.
struct Member {
  size_t joins;
  size_t prefill;
  size_t chunk;
  size_t decode;
};

struct Mix {
  std::string_view name;
  size_t prefix;  // tokens that all have in common
  std::vector<Member> members;
};

const Mix kMixes[] = {
    {"one sequence", 130, {{0, 30, 30, 3}}},
    {"two sequences", 130, {{0, 37, 16, 5}, {1, 20, 7, 5}}},
    {"five sequences",
     130,
     {{0, 30, 30, 9}, {0, 21, 7, 6}, {1, 19, 19, 5}, {2, 17, 5, 4}, {3, 3, 1, 6}}},
    // What the scalar kernels do in a few seconds.
    {"few tokens", 0, {{0, 5, 3, 2}, {1, 2, 2, 1}}},
};
constexpr size_t kOne = 0, kTwo = 1, kFive = 2, kFew = 3;

// Whose the blocks of the prefix are: every sequence's own; all sequences'; and these named as a
// group, so that attention reads them once for all.
enum class Prefix { kPrivate, kShared, kGrouped };
constexpr std::string_view kPrefixNames[] = {"private", "shared", "grouped"};

struct BatchRow {
  std::string_view isa;
  size_t num_threads;
  size_t mix;
  Prefix prefix;
};

std::vector<BatchRow> BatchRows() {
  std::vector<std::string_view> fast;  // fastest first
  for (const compute::Isa& isa : compute::Isas()) {
    if (isa.supported() && isa.name != "scalar") fast.insert(fast.begin(), isa.name);
  }
  std::vector<BatchRow> rows = {{"scalar", 2, kFew, Prefix::kShared}};
  if (fast.empty()) return rows;
  rows.push_back({fast[0], 1, kFew, Prefix::kShared});
  if (!IsFull()) {
    const auto ranked = [&](size_t rank) { return fast[rank % fast.size()]; };
    rows.push_back({ranked(0), 1, kOne, Prefix::kPrivate});
    rows.push_back({ranked(1), 2, kTwo, Prefix::kGrouped});
    rows.push_back({ranked(2), 1, kTwo, Prefix::kShared});
    rows.push_back({ranked(0), 2, kFive, Prefix::kPrivate});
    rows.push_back({ranked(1), 1, kFive, Prefix::kGrouped});
    rows.push_back({ranked(0), 2, kFive, Prefix::kGrouped});
    return rows;
  }
  for (const size_t mix : {kOne, kTwo, kFive}) {
    for (const Prefix prefix : {Prefix::kPrivate, Prefix::kShared, Prefix::kGrouped}) {
      for (const size_t threads : {1u, 2u, 4u}) {
        for (const std::string_view isa : fast) rows.push_back({isa, threads, mix, prefix});
      }
    }
    rows.push_back({"scalar", 2, mix, Prefix::kGrouped});
  }
  return rows;
}

// A member of a batch while it runs.
struct Sequence {
  Member member;
  std::vector<TokenId> tokens;
  std::unique_ptr<kv::SequenceCache> cache;
  const Logits* expected = nullptr;  // of all positions behind the prefix

  // Tokens of its part in step `step`; 0 before it joins and when it is done.
  size_t NumTokens(size_t step, size_t prefix) const {
    const size_t prefilled = prefix + member.prefill;
    if (step < member.joins || cache->length() == tokens.size()) return 0;
    return cache->length() < prefilled ? std::min(member.chunk, prefilled - cache->length()) : 1;
  }
};

std::vector<TokenId> MemberTokens(const text::Tokenizer& tokenizer, const Mix& mix, size_t index) {
  const Member& member = mix.members[index];
  const auto text = MakeTokens(tokenizer, 512);
  std::vector<TokenId> tokens(text.begin(), text.begin() + mix.prefix);
  const auto own = text.begin() + mix.prefix + 11 * index;
  tokens.insert(tokens.end(), own, own + member.prefill + member.decode);
  return tokens;
}

// By mix and member, made when first wanted.
using References = std::map<std::pair<size_t, size_t>, Logits>;

Result<std::vector<Sequence>> MakeSequences(OpenedModel& model, const BatchRow& row,
                                            References& references) {
  const Mix& mix = kMixes[row.mix];
  const kv::Strategy& paged = kv::Strategies().front();
  const kv::CacheOptions options = model.MakeCacheOptions();
  std::vector<Sequence> sequences(mix.members.size());
  Logits none;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = sequences[i];
    sequence.member = mix.members[i];
    sequence.tokens = MemberTokens(model.tokenizer(), mix, i);
    Logits& expected = references[{row.mix, i}];
    if (expected.empty()) {
      const auto alone = paged.make(options);
      KVERN_RETURN_IF_ERROR(Append(model, *alone, sequence.tokens, sequence.tokens.size(), expected,
                                   sequence.tokens.size() - mix.prefix));
    }
    sequence.expected = &expected;
    if (row.prefix == Prefix::kPrivate || i == 0) {
      sequence.cache = paged.make(options);
      const auto prefix = std::span(sequence.tokens).first(mix.prefix);
      KVERN_RETURN_IF_ERROR(Append(model, *sequence.cache, prefix, 64, none, 0));
    } else {
      KVERN_ASSIGN_OR_RETURN(sequence.cache, sequences[0].cache->Fork());
    }
  }
  return sequences;
}

// Runs one step of those that take part in it; false if a bit of their logits differs.
Result<bool> RunStep(OpenedModel& model, const BatchRow& row, std::vector<Sequence>& sequences,
                     size_t step) {
  const size_t prefix = kMixes[row.mix].prefix;
  engine::StepPlan plan;
  std::vector<const float*> expected;
  std::vector<PagedView> views;
  views.reserve(sequences.size());
  for (Sequence& sequence : sequences) {
    const size_t first = sequence.cache->length(), count = sequence.NumTokens(step, prefix);
    if (count == 0) continue;
    KVERN_RETURN_IF_ERROR(sequence.cache->Extend(count));
    views.push_back(sequence.cache->View());
    plan.slices.push_back({.tokens = std::span(sequence.tokens).subspan(first, count),
                           .first_position = static_cast<uint32_t>(first),
                           .views = {&views.back(), 1},
                           .num_logits = static_cast<uint32_t>(count)});
    const size_t vocab_size = sequence.expected->size() / (sequence.tokens.size() - prefix);
    expected.push_back(sequence.expected->data() + (first - prefix) * vocab_size);
  }
  std::vector<uint32_t> members(plan.slices.size());
  std::iota(members.begin(), members.end(), 0);
  if (row.prefix == Prefix::kGrouped) {
    plan.shared.push_back(
        {.slices = members, .num_chunks = static_cast<uint32_t>(prefix / kChunkTokens)});
  }
  KVERN_ASSIGN_OR_RETURN(const auto outputs, model.executor().Execute(plan));
  bool same = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    KVERN_RETURN_IF_ERROR(outputs[i].status);
    for (const std::span<const float> logits : outputs[i].logits) {
      same = same && std::memcmp(logits.data(), expected[i], logits.size_bytes()) == 0;
      expected[i] += logits.size();
    }
  }
  return same;
}

Result<bool> RunBatch(OpenedModel& model, const BatchRow& row, References& references) {
  KVERN_ASSIGN_OR_RETURN(auto sequences, MakeSequences(model, row, references));
  const auto is_done = [](const Sequence& s) { return s.cache->length() == s.tokens.size(); };
  bool same = true;
  for (size_t step = 0; !std::all_of(sequences.begin(), sequences.end(), is_done); ++step) {
    KVERN_ASSIGN_OR_RETURN(const bool step_same, RunStep(model, row, sequences, step));
    same = same && step_same;
  }
  return same;
}

// Runs all batches on one model; returns how many differ.
Result<int> CheckBatches(const std::string& path) {
  References references;
  int num_wrong = 0;
  for (const BatchRow& row : BatchRows()) {
    engine::OpenOptions options;
    options.path = path;
    options.context = 256;
    options.pool_tokens = 2048;
    options.num_threads = row.num_threads;
    options.isa = row.isa;
    KVERN_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(options));
    KVERN_ASSIGN_OR_RETURN(const bool same, RunBatch(model, row, references));
    if (!same) ++num_wrong;
    fmt::print("{:8} {} threads, {}, prefix {}: {}\n", row.isa, row.num_threads,
               kMixes[row.mix].name, kPrefixNames[static_cast<size_t>(row.prefix)],
               same ? "same bits" : "DIFFERENT");
  }
  return num_wrong;
}

Result<int> CheckModel(const std::string& path) {
  KVERN_ASSIGN_OR_RETURN(const int num_wrong, CheckSequences(path));
  KVERN_ASSIGN_OR_RETURN(const int num_wrong_batches, CheckBatches(path));
  return num_wrong + num_wrong_batches;
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
