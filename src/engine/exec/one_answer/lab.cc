#include "engine/exec/one_answer/lab.h"

#include <utility>

#include "base/hash.h"
#include "compute/kv_dtype.h"
#include "engine/exec/cpu.h"
#include "engine/exec/one_answer/random_twin.h"

namespace kvern::engine::one_answer {
namespace {

// What a step costs on the clock.
constexpr int64_t kStepUs = 3000;
constexpr int64_t kTokenUs = 1200;

// A draft model keeps the texts of a whole set of requests.
constexpr size_t kTwinContexts = 8;

Result<OpenOptions> OptionsOf(const ModelKey& key, const std::string& path) {
  const auto* const k = compute::FindKvDtype(key.k_dtype);
  const auto* const v = compute::FindKvDtype(key.v_dtype);
  if (k == nullptr || v == nullptr) {
    return Errorf(ErrorCode::kInvalidArgument, "no KV type {} or {}", key.k_dtype, key.v_dtype);
  }
  OpenOptions options;
  options.path = path;
  options.context = kContext;
  options.num_threads = key.num_threads;
  options.k_dtype = k->dtype;
  options.v_dtype = v->dtype;
  options.isa = key.isa;
  options.max_step_tokens = kMaxStepTokens;
  return options;
}

// Moves the clock before it asks another pace, if there is one.
class TimedPace final : public Pace {
 public:
  TimedPace(Pace* inner, StepClock* clock, int64_t part_us)
      : inner_(inner), clock_(*clock), part_us_(part_us) {}
  bool Begin() override { return inner_ == nullptr || inner_->Begin(); }
  bool HasTime() override {
    clock_.Advance(part_us_);
    return inner_ == nullptr || inner_->HasTime();
  }

 private:
  Pace* const inner_;
  StepClock& clock_;
  const int64_t part_us_;
};

}  // namespace

Result<std::span<const SliceOutput>> RecordingExecutor::Execute(const StepPlan& plan) {
  if (before) before(plan);
  const auto time_of = [](const Slice& slice) {
    return kTokenUs * static_cast<int64_t>(slice.tokens.size());
  };
  clock_.Advance(kStepUs);
  for (const Slice& slice : plan.slices) clock_.Advance(slice.is_chunk ? 0 : time_of(slice));
  // Layers take time on the clock that the pace reads.
  TimedPace pace(plan.pace, &clock_, time_of(plan.slices.back()) / inner_.info().num_layers);
  StepPlan timed = plan;
  timed.pace = &pace;
  auto outputs = inner_.Execute(timed);
  if (!outputs.ok()) return outputs;
  if (after) after(plan);
  for (size_t i = 0; i < plan.slices.size(); ++i) {
    const Slice& slice = plan.slices[i];
    const SliceOutput& output = (*outputs)[i];
    if (slice.is_chunk && output.next_layer < inner_.info().num_layers) {
      ++num_left_;
      continue;
    }
    // What is damaged is computed again, and what comes after a rejected draft is never said.
    if (slice.sample == nullptr || output.stored_differs) continue;
    const size_t end = slice.first_position + slice.tokens.size();
    for (size_t row = 0; row < output.tokens.size(); ++row) {
      const LogitKey key = {slice.sample->params->seed, slice.sample->completion_index,
                            static_cast<uint32_t>(end - slice.num_logits + row)};
      const uint64_t hash = Hash64(std::as_bytes(output.logits[row]), 0);
      const auto [found, is_new] = logits_.emplace(key, hash);
      num_conflicts_ += !is_new && found->second != hash;
    }
  }
  return outputs;
}

Result<OpenedModel*> Lab::Open(const ModelKey& key) {
  std::unique_ptr<OpenedModel>& model = models_[key];
  if (model == nullptr) {
    KVERN_ASSIGN_OR_RETURN(const OpenOptions options, OptionsOf(key, model_path_));
    KVERN_ASSIGN_OR_RETURN(OpenedModel opened, OpenedModel::Open(options));
    model = std::make_unique<OpenedModel>(std::move(opened));
  }
  return model.get();
}

Result<std::string> Lab::RandomTwin() {
  if (!has_twin_) KVERN_RETURN_IF_ERROR(WriteRandomTwin(model_path_, twin_path_));
  has_twin_ = true;
  return twin_path_;
}

Result<OpenedModel*> Lab::OpenTwin(const ModelKey& key) {
  KVERN_ASSIGN_OR_RETURN(const std::string path, RandomTwin());
  KVERN_ASSIGN_OR_RETURN(OpenedModel* const target, Open(key));
  std::unique_ptr<OpenedModel>& twin = twins_[key];
  if (twin == nullptr) {
    KVERN_ASSIGN_OR_RETURN(OpenOptions options, OptionsOf(key, path));
    options.team = &target->team();
    options.pool_contexts = kTwinContexts;
    KVERN_ASSIGN_OR_RETURN(OpenedModel opened, OpenedModel::Open(options));
    twin = std::make_unique<OpenedModel>(std::move(opened));
  }
  return twin.get();
}

Result<TestCache> Lab::MakeCache(const OpenedModel& model, size_t num_blocks,
                                 const std::string& eviction) {
  TestCache made;
  made.store = std::make_unique<kv::HostBlockStore>(MakeCopyRows(model.layout()));
  kv::KvCacheOptions options;
  options.groups = {MakeGroupSpec(model.layout())};
  options.budget_bytes = num_blocks * model.layout().block_bytes();
  options.min_slab_bytes = model.layout().block_bytes();
  options.eviction = eviction;
  KVERN_ASSIGN_OR_RETURN(made.cache, kv::KvCache::Make(std::move(options), made.store.get()));
  return made;
}

}  // namespace kvern::engine::one_answer
