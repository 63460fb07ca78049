#include "engine/exec/one_answer/reference.h"

#include <algorithm>
#include <vector>

#include "base/hash.h"
#include "engine/exec/one_answer/core_run.h"
#include "engine/generation.h"
#include "kv/strategy.h"

namespace kvern::engine::one_answer {
namespace {

// Tokens that are computed without a cache, each from the whole history.
constexpr size_t kNumChecked = 16;

}  // namespace

Result<ReferenceAnswer> Reference::Compute(const Request& request) {
  Case alone;
  alone.name = "alone";
  alone.request = request;
  alone.request.cache.use = false;
  CoreSetup setup;
  setup.model = key_;
  KVERN_ASSIGN_OR_RETURN(const auto run, CoreRun::Make(&lab_, setup));
  const std::vector<Submission> submissions = {{.asked = &alone}};
  KVERN_ASSIGN_OR_RETURN(std::vector<RequestAnswer> answers, run->Answer(submissions));
  return ReferenceAnswer{std::move(answers[0]), run->logits()};
}

Result<const ReferenceAnswer*> Reference::Of(const Case& asked) {
  std::unique_ptr<ReferenceAnswer>& known = answers_[asked.name];
  if (known == nullptr) {
    KVERN_ASSIGN_OR_RETURN(ReferenceAnswer computed, Compute(asked.request));
    known = std::make_unique<ReferenceAnswer>(std::move(computed));
  }
  return known.get();
}

Result<RequestAnswer> Reference::Answer(const Request& request) {
  KVERN_ASSIGN_OR_RETURN(ReferenceAnswer computed, Compute(request));
  return std::move(computed.answer);
}

Result<std::optional<std::string>> Reference::CheckWithoutCache(const Case& asked) {
  KVERN_ASSIGN_OR_RETURN(const ReferenceAnswer* const expected, Of(asked));
  for (uint32_t i = 0; i < asked.request.n; ++i) {
    KVERN_ASSIGN_OR_RETURN(const auto difference, CheckCompletion(asked, i, *expected));
    if (difference) return difference;
  }
  return std::optional<std::string>();
}

Result<std::optional<std::string>> Reference::CheckCompletion(const Case& asked,
                                                              uint32_t completion,
                                                              const ReferenceAnswer& expected) {
  const Request& request = asked.request;
  KVERN_ASSIGN_OR_RETURN(OpenedModel* const model, lab_.Open(key_));
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* const none, kv::FindStrategy("none"));
  GenerationOptions options = model->MakeGenerationOptions(*none);
  if (request.ignore_end) options.end_tokens.clear();
  Generation generation(&model->executor(), std::move(options));
  SamplingParams sampling = request.sampling;
  sampling.seed = *request.seed;
  KVERN_RETURN_IF_ERROR(generation.Start({.prompt = request.tokens,
                                          .sampling = sampling,
                                          .max_new_tokens = request.max_tokens,
                                          .completion_index = completion}));
  // A stop of the request ends its answer earlier than the generation, which knows of none.
  CompletionAnswer begun = expected.answer.completions[completion];
  begun.tokens.resize(std::min(kNumChecked, begun.tokens.size()));
  RequestAnswer actual, wanted;
  actual.completions.resize(1);
  LogitHashes logits;
  while (actual.completions[0].tokens.size() < begun.tokens.size()) {
    const auto position = static_cast<uint32_t>(generation.tokens().size() - 1);
    KVERN_ASSIGN_OR_RETURN(const auto token, generation.Step());
    if (!token) {
      if (generation.finish_reason()) break;
      continue;
    }
    actual.completions[0].tokens.push_back(*token);
    logits.emplace(LogitKey{*request.seed, completion, position},
                   Hash64(std::as_bytes(generation.last_logits()), 0));
  }
  const size_t num_tokens = actual.completions[0].tokens.size();
  if (num_tokens < begun.tokens.size()) {
    return std::optional(fmt::format("completion {} has {} tokens, not {}", completion, num_tokens,
                                     begun.tokens.size()));
  }
  wanted.completions.push_back(std::move(begun));
  std::optional<std::string> difference = FindDifference(wanted, actual, /*was_cut=*/true);
  for (const auto& [key, hash] : logits) {
    const auto found = expected.logits.find(key);
    if (difference || (found != expected.logits.end() && found->second == hash)) continue;
    difference = fmt::format("logits after position {} differ", key.position);
  }
  if (difference) difference = fmt::format("completion {}: {}", completion, *difference);
  return difference;
}

}  // namespace kvern::engine::one_answer
