// Parts of llama.cpp's replies that replies of other protocols have too: times, progress of the
// prompt, and how a request was read.
//
// Any thread, but for a PromptProgress, which is one thread's at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <vector>

#include "server/api/openai.h"

namespace kvern::server {

// "timings": tokens and milliseconds of the prompt and of the answer so far.
nlohmann::ordered_json TimingsOf(const Report& report);

// What is new of a prompt that is being computed, each time it is asked.
class PromptProgress {
 public:
  // For each step of the prompt, in order: {"prompt_progress": …, "timings": …}. The first is that
  // of admission, before anything was computed.
  std::vector<nlohmann::ordered_json> Take(const Report& report);

 private:
  size_t num_events_ = 0;            // that were seen
  std::optional<size_t> told_ = {};  // tokens
  int64_t admitted_us_ = 0;
};

// "generation_settings": what is in effect. Samplers that are not there are switched off.
nlohmann::ordered_json GenerationSettings(const ApiRequest& request, uint64_t seed);

// "params" of the server's own defaults.
nlohmann::ordered_json DefaultSettings(const RequestDefaults& defaults);

// "completion_probabilities".
nlohmann::ordered_json TokenProbabilities(const ApiRequest& request, const ModelText& text,
                                          std::span<const SampledToken> tokens);

// "__verbose" of the replies of other protocols.
nlohmann::ordered_json VerboseOf(const ApiRequest& request, const Report& report);

}  // namespace kvern::server
