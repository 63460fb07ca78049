// FakeProposer: drafts that are right, wrong, partly right or missing, by chance; and checks that
// it is called as proposer.h says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/rng.h"
#include "engine/model_check/fake_model.h"
#include "engine/proposer.h"

namespace kvern::engine::model_check {

class FakeProposer final : public Proposer {
 public:
  FakeProposer(const FakeModel* model, uint64_t seed) : model_(*model), random_(seed) {}

  void Propose(std::span<const DraftRequest> batch) override;
  void Forget(SequenceKey key) override { known_.erase(key); }

  // Of 8: how many drafted tokens are a good guess.
  void set_skill(uint64_t skill) { skill_ = skill; }
  size_t num_known() const { return known_.size(); }  // keys that were not forgotten

 private:
  const FakeModel& model_;
  SplitMix64 random_;
  uint64_t skill_ = 6;
  std::map<SequenceKey, std::vector<TokenId>> known_;
};

}  // namespace kvern::engine::model_check
