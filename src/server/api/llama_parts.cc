#include "server/api/llama_parts.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "server/api/openai_parts.h"

namespace kvern::server {

using Json = nlohmann::ordered_json;

namespace {

double Milliseconds(int64_t us) { return static_cast<double>(us) / 1e3; }

// Of so many tokens in that time, as "<name>_n" and rates. Decoding has one step less than tokens:
// the first comes with the prompt.
void AddPace(const std::string& name, size_t num_tokens, size_t num_steps, double ms,
             Json& timings) {
  const bool has_pace = num_steps > 0 && ms > 0;
  const auto steps = static_cast<double>(num_steps);
  timings[name + "_n"] = num_tokens;
  timings[name + "_ms"] = ms;
  timings[name + "_per_token_ms"] = has_pace ? ms / steps : 0.0;
  timings[name + "_per_second"] = has_pace ? 1e3 / ms * steps : 0.0;
}

Json MakeTimings(size_t cached, size_t computed, double prompt_ms, size_t predicted,
                 double predicted_ms) {
  Json timings = {{"cache_n", cached}};
  AddPace("prompt", computed, computed, prompt_ms, timings);
  AddPace("predicted", predicted, predicted > 0 ? predicted - 1 : 0, predicted_ms, timings);
  return timings;
}

Json SamplingSettings(const SamplingParams& params) {
  return {{"temperature", params.temperature},
          {"dynatemp_range", 0.0},
          {"dynatemp_exponent", 1.0},
          {"top_k", params.top_k},
          {"top_p", params.top_p},
          {"min_p", params.min_p},
          {"top_n_sigma", -1.0},
          {"xtc_probability", 0.0},
          {"typical_p", 1.0},
          {"repeat_last_n", params.repetition_window},
          {"repeat_penalty", params.repetition_penalty},
          {"presence_penalty", params.presence_penalty},
          {"frequency_penalty", params.frequency_penalty},
          {"dry_multiplier", 0.0},
          {"mirostat", 0},
          {"adaptive_target", -1.0},
          {"adaptive_decay", 0.0},
          {"samplers", {"penalties", "temperature", "top_k", "top_p", "min_p"}}};
}

int64_t CountOrNone(const std::optional<size_t>& count) {
  return count ? static_cast<int64_t>(*count) : -1;
}

// Probabilities of the most likely tokens once sampling has left some away: rule N10's order, as
// far as it goes for `top`, which has all that top-k lets through.
std::vector<std::pair<TokenId, double>> SampledProbabilities(const SamplingParams& params,
                                                             const SampledToken& token) {
  if (params.temperature == 0 || token.top.empty()) return {{token.id, 1.0}};
  const double best = double{token.top.front().logprob};
  std::vector<std::pair<TokenId, double>> kept;
  double sum = 0;
  for (const TokenLogprob& other : token.top) {
    const double weight = std::exp((double{other.logprob} - best) / double{params.temperature});
    kept.emplace_back(other.id, weight);
    sum += weight;
  }
  const auto cut = [&kept](size_t count) {
    kept.resize(std::max<size_t>(1, std::min(count, kept.size())));
  };
  double reached = 0;
  size_t within = 0;
  while (within < kept.size() && reached < double{params.top_p} * sum) {
    reached += kept[within++].second;
  }
  cut(within);
  cut(static_cast<size_t>(std::ranges::count_if(
      kept, [&](const auto& entry) { return entry.second >= double{params.min_p}; })));
  sum = 0;
  for (const auto& [id, weight] : kept) sum += weight;
  for (auto& [id, weight] : kept) weight /= sum;
  return kept;
}

Json NamedToken(const ModelText& text, TokenId id) {
  // The name and the bytes are those of OpenAI's logprobs.
  const SampledToken token{.id = id, .logprob = 0, .top = {}};
  Json named = {{"id", static_cast<uint32_t>(id)}};
  const Json entry = ChatLogprobs(text, {&token, 1})["content"][0];
  named["token"] = entry["token"];
  named["bytes"] = entry["bytes"];
  return named;
}

}  // namespace

Json TimingsOf(const Report& report) {
  const int64_t ttft_us = report.ttft_us.value_or(0);
  const double prompt_ms = Milliseconds(report.ttft_us ? ttft_us - report.queue_us.value_or(0) : 0);
  const double predicted_ms =
      Milliseconds(report.ttft_us ? report.total_us.value_or(ttft_us) - ttft_us : 0);
  Json timings = MakeTimings(report.prompt.hit(), report.prompt_tokens - report.prompt.hit(),
                             prompt_ms, report.completion_tokens, predicted_ms);
  if (report.drafted_tokens > 0) {
    timings["draft_n"] = report.drafted_tokens;
    timings["draft_n_accepted"] = report.accepted_tokens;
  }
  return timings;
}

std::vector<Json> PromptProgress::Take(const Report& report) {
  std::vector<Json> news;
  const size_t total = report.prompt_tokens, cached = report.prompt.hit();
  const auto tell = [&](size_t processed, int64_t now_us) {
    const double ms = Milliseconds(now_us - admitted_us_);
    news.push_back(
        {{"prompt_progress",
          {{"total", total}, {"cache", cached}, {"processed", processed}, {"time_ms", ms}}},
         {"timings", MakeTimings(cached, processed - cached, ms, 0, 0)}});
    told_ = processed;
  };
  for (; num_events_ < report.events.size(); ++num_events_) {
    const LifecycleEvent& event = report.events[num_events_];
    if (event.completion != 0) continue;
    if (event.kind == LifecycleEvent::Kind::kAdmitted) {
      admitted_us_ = event.time_us;
      tell(cached, event.time_us);
    } else if (event.kind == LifecycleEvent::Kind::kPrefill && told_) {
      const size_t processed = std::min(event.amount, total);
      if (processed > *told_) tell(processed, event.time_us);
    }
  }
  return news;
}

Json GenerationSettings(const ApiRequest& request, uint64_t seed) {
  const Request& asked = request.request;
  Json settings = {{"seed", seed}};
  settings.update(SamplingSettings(asked.sampling));
  Json biases = Json::array();
  for (const auto& [id, bias] : asked.sampling.logit_bias) {
    biases.push_back({{"bias", bias}, {"token", static_cast<uint32_t>(id)}});
  }
  for (const TokenId id : request.llama.ignored_ends) {
    biases.push_back({{"bias", nullptr}, {"token", static_cast<uint32_t>(id)}});  // null: never
  }
  settings["stop"] = asked.stop;
  settings["max_tokens"] = CountOrNone(asked.max_tokens);
  settings["n_predict"] = CountOrNone(asked.max_tokens);
  settings["ignore_eos"] = asked.ignore_end;
  settings["stream"] = request.is_stream;
  settings["logit_bias"] = std::move(biases);
  settings["n_probs"] = request.llama.num_probs;
  settings["timings_per_token"] = request.llama.has_token_timings;
  settings["post_sampling_probs"] = request.llama.has_sampled_probs;
  return settings;
}

Json DefaultSettings(const RequestDefaults& defaults) {
  SamplingParams params;  // llama.cpp's where no flag says otherwise
  const auto set = [](auto& param, const auto& given) { param = given.value_or(param); };
  set(params.temperature, defaults.temperature);
  set(params.top_k, defaults.top_k);
  set(params.top_p, defaults.top_p);
  set(params.min_p, defaults.min_p);
  set(params.repetition_penalty, defaults.repetition_penalty);
  set(params.repetition_window, defaults.repetition_window);
  set(params.presence_penalty, defaults.presence_penalty);
  set(params.frequency_penalty, defaults.frequency_penalty);
  Json settings = SamplingSettings(params);
  settings["seed"] = defaults.seed ? Json(*defaults.seed) : Json(-1);
  settings["max_tokens"] = CountOrNone(defaults.max_tokens);
  settings["n_predict"] = CountOrNone(defaults.max_tokens);
  settings["ignore_eos"] = defaults.ignore_end;
  return settings;
}

Json TokenProbabilities(const ApiRequest& request, const ModelText& text,
                        std::span<const SampledToken> tokens) {
  const bool is_sampled = request.llama.has_sampled_probs;
  Json list = Json::array();
  for (const SampledToken& token : tokens) {
    Json entry = NamedToken(text, token.id);
    Json top = Json::array();
    if (is_sampled) {
      const auto kept = SampledProbabilities(request.request.sampling, token);
      // A token at the edge of a cut may be seen on its other side here.
      double own = kept.back().second;
      for (const auto& [id, probability] : kept) {
        if (id == token.id) own = probability;
        if (top.size() == request.llama.num_probs) continue;
        top.push_back(NamedToken(text, id));
        top.back()["prob"] = probability;
      }
      entry["prob"] = own;
    } else {
      entry["logprob"] = LogprobOf(token.logprob);
      for (const TokenLogprob& other : token.top) {
        top.push_back(NamedToken(text, other.id));
        top.back()["logprob"] = LogprobOf(other.logprob);
      }
    }
    entry[is_sampled ? "top_probs" : "top_logprobs"] = std::move(top);
    list.push_back(std::move(entry));
  }
  return list;
}

Json VerboseOf(const ApiRequest& request, const Report& report) {
  return {{"prompt", request.llama.prompt},
          {"tokens_evaluated", report.prompt_tokens},
          {"tokens_predicted", report.completion_tokens},
          {"generation_settings", GenerationSettings(request, report.seed)}};
}

}  // namespace kvern::server
