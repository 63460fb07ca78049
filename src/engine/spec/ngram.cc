#include "engine/spec/ngram.h"

#include <unordered_map>

#include "engine/spec/ngram_index.h"

namespace kvern::engine {
namespace {

class NgramProposer final : public Proposer {
 public:
  void Propose(std::span<const DraftRequest> batch) override {
    for (const DraftRequest& request : batch) ProposeOne(request);
  }

  void Forget(SequenceKey key) override { indices_.erase(key); }

 private:
  void ProposeOne(const DraftRequest& request) {
    NgramIndex& index = indices_[request.key];
    index.Update(request.tokens);
    const auto begin = index.FindContinuation(request.tokens);
    if (!begin) return;
    // What is drafted is text too: a period goes on beyond the end.
    const size_t length = request.tokens.size();
    for (size_t from = *begin; from < *begin + request.max_draft; ++from) {
      const TokenId next = from < length ? request.tokens[from] : (*request.draft)[from - length];
      request.draft->push_back(next);
    }
  }

  std::unordered_map<SequenceKey, NgramIndex> indices_;
};

}  // namespace

std::unique_ptr<Proposer> MakeNgramProposer() { return std::make_unique<NgramProposer>(); }

}  // namespace kvern::engine
