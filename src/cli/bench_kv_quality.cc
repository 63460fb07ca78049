#include "cli/bench_kv_quality.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "cli/bench_table.h"
#include "cli/progress.h"
#include "kvern/paged_view.h"

namespace kvern::cli {
namespace {

// Positions whose logits of all types are held at once.
constexpr size_t kHeldPositions = 32;

struct DistanceSums {
  std::vector<double> chunk_means;  // of the divergence
  double kl = 0;
  size_t num_same_top = 0;

  void Add(const NextToken& reference, const NextToken& other) {
    kl += reference.DivergenceOf(other);
    num_same_top += reference.top() == other.top() ? 1 : 0;
  }
  void EndChunk(size_t num_positions) {
    chunk_means.push_back(kl / static_cast<double>(num_positions));
    kl = 0;
  }
  KvDistance Finish(size_t num_positions) const {
    const MeanSd mean = ComputeMeanSd(chunk_means);
    return {.mean_kl = mean.mean,
            .kl_error = mean.sd / std::sqrt(static_cast<double>(chunk_means.size())),
            .same_top = static_cast<double>(num_same_top) / static_cast<double>(num_positions)};
  }
};

// A type on its way through the text.
struct Reader {
  KvRig* rig;
  KvBlocks blocks;
  std::vector<float> logits = {};  // of the held positions
  double negative_log_likelihood = 0;
  DistanceSums from_f16 = {}, from_f32 = {};
};

// Computes tokens [first, first + count) and holds their logits, if they are wanted.
Status Read(Reader& reader, std::span<const TokenId> chunk, size_t first, size_t count,
            bool wants_logits) {
  const PagedView view = {reader.blocks.pointers(), static_cast<uint32_t>(reader.blocks.size())};
  KVERN_ASSIGN_OR_RETURN(
      const auto outputs,
      RunSlices(*reader.rig->executor,
                {{.tokens = chunk.subspan(first, count),
                  .first_position = static_cast<uint32_t>(first),
                  .views = {&view, 1},
                  .num_logits = wants_logits ? static_cast<uint32_t>(count) : 0u}}));
  reader.logits.clear();
  for (const auto& row : outputs[0].logits) {
    reader.logits.insert(reader.logits.end(), row.begin(), row.end());
  }
  return {};
}

class Comparison {
 public:
  // `rigs[0]` is f16's, the last one f32's.
  static Result<Comparison> Make(std::span<KvRig* const> rigs, size_t longest_chunk) {
    Comparison comparison;
    for (KvRig* const rig : rigs) {
      KVERN_ASSIGN_OR_RETURN(
          KvBlocks blocks,
          KvBlocks::Create(*rig, (longest_chunk + kBlockTokens - 1) / kBlockTokens));
      comparison.readers_.push_back({.rig = rig, .blocks = std::move(blocks)});
    }
    return comparison;
  }

  // Scores positions from the middle on that have a next token.
  Status Add(std::span<const TokenId> chunk) {
    const size_t first_scored = chunk.size() / 2, last = chunk.size() - 1;
    for (Reader& reader : readers_) {
      const size_t step = reader.rig->executor->info().max_step_tokens;
      for (size_t first = 0; first < first_scored; first += step) {
        KVERN_RETURN_IF_ERROR(
            Read(reader, chunk, first, std::min(step, first_scored - first), false));
      }
    }
    for (size_t first = first_scored; first < last; first += held_positions()) {
      const size_t count = std::min(held_positions(), last - first);
      for (Reader& reader : readers_) {
        KVERN_RETURN_IF_ERROR(Read(reader, chunk, first, count, true));
      }
      for (size_t i = 0; i < count; ++i) Compare(i, static_cast<size_t>(chunk[first + i + 1]));
    }
    num_positions_ += last - first_scored;
    for (Reader& reader : readers_) {
      reader.from_f16.EndChunk(last - first_scored);
      reader.from_f32.EndChunk(last - first_scored);
    }
    return {};
  }

  KvQualities Finish(size_t num_types) const {
    KvQualities qualities = {.num_positions = num_positions_,
                             .num_chunks = readers_[0].from_f16.chunk_means.size(),
                             .by_type = {}};
    for (size_t type = 0; type < num_types; ++type) {
      const Reader& reader = readers_[type];
      const double mean = reader.negative_log_likelihood / static_cast<double>(num_positions_);
      qualities.by_type.push_back({.perplexity = std::exp(mean),
                                   .from_f16 = reader.from_f16.Finish(num_positions_),
                                   .from_f32 = reader.from_f32.Finish(num_positions_)});
    }
    return qualities;
  }

 private:
  size_t held_positions() const {
    return std::min<size_t>(kHeldPositions, readers_[0].rig->executor->info().max_step_tokens);
  }

  NextToken At(const Reader& reader, size_t position) const {
    const size_t vocab_size = reader.rig->executor->info().vocab_size;
    return NextToken(std::span(reader.logits).subspan(position * vocab_size, vocab_size));
  }

  void Compare(size_t position, size_t next) {
    const NextToken f16 = At(readers_.front(), position), f32 = At(readers_.back(), position);
    for (Reader& reader : readers_) {
      const NextToken own = At(reader, position);
      reader.negative_log_likelihood -= own.LogProbability(next);
      reader.from_f16.Add(f16, own);
      reader.from_f32.Add(f32, own);
    }
  }

  std::vector<Reader> readers_;
  size_t num_positions_ = 0;
};

}  // namespace

NextToken::NextToken(std::span<const float> logits)
    : logits_(logits),
      top_(static_cast<size_t>(std::ranges::max_element(logits) - logits.begin())) {
  const double largest = logits[top_];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  log_sum_ = largest + std::log(sum);
}

double NextToken::DivergenceOf(const NextToken& other) const {
  double sum = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    const double own = LogProbability(i);
    sum += std::exp(own) * (own - other.LogProbability(i));
  }
  return sum;
}

Result<KvQualities> MeasureKvQuality(KvBenchModel& model, std::vector<KvRig>& rigs,
                                     std::span<const std::vector<TokenId>> chunks) {
  CHECK(rigs.front().types == kF16Types && !chunks.empty());
  size_t longest = 0;
  for (const auto& chunk : chunks) longest = std::max(longest, chunk.size());
  const size_t context = rigs.front().executor->info().max_positions;
  if (longest > context) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "--chunk: {} tokens exceed the model's context of {}", longest, context);
  }
  KVERN_ASSIGN_OR_RETURN(KvRig f32, model.MakeRig(kF32Types));
  std::vector<KvRig*> all;
  all.reserve(rigs.size() + 1);
  for (KvRig& rig : rigs) all.push_back(&rig);
  all.push_back(&f32);
  KVERN_ASSIGN_OR_RETURN(Comparison comparison, Comparison::Make(all, longest));
  Progress progress("Reading the text");
  for (size_t i = 0; i < chunks.size(); ++i) {
    progress.Update(static_cast<double>(i) / static_cast<double>(chunks.size()));
    KVERN_RETURN_IF_ERROR(comparison.Add(chunks[i]));
  }
  return comparison.Finish(rigs.size());
}

}  // namespace kvern::cli
