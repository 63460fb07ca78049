#include "model/attention_plan.h"

#include <algorithm>

namespace kvern::model {
namespace {

class Planner {
 public:
  Planner(const ForwardBatch& batch, uint32_t max_rows) : batch_(batch), max_rows_(max_rows) {
    uint32_t row = 0;
    for (const ForwardSlice& slice : batch.slices) {
      first_rows_.push_back(row);
      row += static_cast<uint32_t>(slice.tokens.size());
    }
  }

  AttentionPlan Plan() {
    std::vector<bool> grouped(batch_.slices.size());
    for (const SharedChunks& group : batch_.shared) {
      for (const uint32_t slice : group.slices) {
        AddSlice(slice, group.num_chunks);
        grouped[slice] = true;
      }
      Close(group.num_chunks);
    }
    for (uint32_t slice = 0; slice < batch_.slices.size(); ++slice) {
      if (grouped[slice]) continue;
      AddSlice(slice, 0);
      Close(0);
    }
    return std::move(plan_);
  }

 private:
  // Adds the slice's rows to the open tile, closing it whenever it is full.
  void AddSlice(uint32_t slice, uint32_t common_chunks) {
    const ForwardSlice& s = batch_.slices[slice];
    const auto num_rows = static_cast<uint32_t>(s.tokens.size());
    for (uint32_t done = 0; done < num_rows;) {
      const uint32_t count = std::min(num_rows - done, max_rows_ - open_rows_);
      plan_.runs.push_back({slice, first_rows_[slice] + done, count, s.first_position + done});
      open_rows_ += count;
      done += count;
      if (open_rows_ == max_rows_) Close(common_chunks);
    }
  }

  void Close(uint32_t common_chunks) {
    if (open_rows_ == 0) return;
    const auto num_runs = static_cast<uint32_t>(plan_.runs.size()) - first_open_run_;
    plan_.tiles.push_back({first_open_run_, num_runs, open_rows_, common_chunks});
    first_open_run_ += num_runs;
    open_rows_ = 0;
  }

  const ForwardBatch& batch_;
  const uint32_t max_rows_;
  std::vector<uint32_t> first_rows_;
  AttentionPlan plan_;
  uint32_t first_open_run_ = 0;
  uint32_t open_rows_ = 0;
};

}  // namespace

AttentionPlan PlanAttention(const ForwardBatch& batch, uint32_t max_rows) {
  return Planner(batch, max_rows).Plan();
}

}  // namespace kvern::model
