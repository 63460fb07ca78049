#include "engine/model_check/fake_proposer.h"

#include <algorithm>

#include "kv/model_check/content.h"

namespace kvern::engine::model_check {

using kv::model_check::Require;

void FakeProposer::Propose(std::span<const DraftRequest> batch) {
  Require(!batch.empty(), "an empty batch to propose for");
  for (const DraftRequest& request : batch) {
    Require(request.max_draft > 0 && request.draft != nullptr && request.draft->empty() &&
                !request.tokens.empty(),
            "a draft of {} tokens is wanted into a full list", request.max_draft);
    std::vector<TokenId>& known = known_[request.key];
    Require(request.tokens.size() >= known.size() &&
                std::equal(known.begin(), known.end(), request.tokens.begin()),
            "the tokens of a sequence that is not forgotten are others than before");
    known.assign(request.tokens.begin(), request.tokens.end());
    TokenId last = request.tokens.back();
    for (size_t left = random_.Below(request.max_draft + 1); left > 0; --left) {
      const bool is_good = random_.Below(8) < skill_;
      last = is_good ? LikelyNext(model_, last)
                     : TokenId{static_cast<uint32_t>(random_.Below(model_.vocab_size))};
      request.draft->push_back(last);
    }
  }
}

}  // namespace kvern::engine::model_check
