#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <random>

#include "compute/sampling.h"

namespace kvern::cli {
namespace {

// "15043-1" and "29905+0.5": the id, then the signed bias.
Result<std::pair<TokenId, float>> ParseLogitBias(const std::string& text) {
  const size_t sign = text.find_first_of("+-");
  uint32_t id = 0;
  float bias = 0;
  if (sign != std::string::npos) {
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const char* const number = begin + sign + (text[sign] == '+' ? 1 : 0);
    const auto id_end = std::from_chars(begin, begin + sign, id);
    const auto bias_end = std::from_chars(number, end, bias);
    if (id_end.ec == std::errc() && id_end.ptr == begin + sign && bias_end.ec == std::errc() &&
        bias_end.ptr == end) {
      return std::pair(TokenId{id}, bias);
    }
  }
  return Errorf(ErrorCode::kInvalidArgument,
                "--logit-bias: '{}' is not a token id and a signed bias such as 42-1.5", text);
}

uint64_t DrawSeed() {
  std::random_device device;
  // Readers of JSON may keep no more than 53 bits, and --seed must give the same reply again.
  return (uint64_t{device()} << 32 | device()) >> 11;
}

}  // namespace

void AddSamplingFlags(CLI::App& app, SamplingFlags& flags) {
  SamplingParams& params = flags.params;
  const std::string group = "Sampling";
  const auto add = [&](const std::string& name, auto& target, const std::string& help) {
    app.add_option(name, target, help)->capture_default_str()->group(group);
  };
  add("--temp", params.temperature, "Temperature; 0 always takes the most likely token");
  add("--top-k", params.top_k, "Keep the k most likely tokens; 0 is all");
  add("--top-p", params.top_p, "Keep the most likely tokens up to this probability; 1 is all");
  add("--min-p", params.min_p, "Drop tokens less likely than this share of the best; 0 is none");
  add("--repeat-penalty", params.repetition_penalty, "Penalty on repeated tokens; 1 is none");
  add("--repeat-last-n", params.repetition_window, "Tokens that it looks back on; -1 is all");
  add("--presence-penalty", params.presence_penalty, "Penalty on tokens of the reply so far");
  add("--frequency-penalty", params.frequency_penalty, "The same, for each time they occurred");
  add("-s,--seed", flags.seed, "Seed of the draws; -1 draws one");
  add("--logprobs", params.num_logprobs, "Alternatives that --json reports per token");
  app.add_option("-l,--logit-bias", flags.logit_bias, "ID+BIAS or ID-BIAS; may be repeated")
      ->group(group);
}

Result<SamplingParams> ParamsFromFlags(const SamplingFlags& flags, size_t vocab_size) {
  SamplingParams params = flags.params;
  if (flags.seed < -1) {
    return Errorf(ErrorCode::kInvalidArgument, "--seed: {} is neither a seed nor -1", flags.seed);
  }
  params.seed = flags.seed == -1 ? DrawSeed() : static_cast<uint64_t>(flags.seed);
  for (const std::string& text : flags.logit_bias) {
    KVERN_ASSIGN_OR_RETURN(const auto bias, ParseLogitBias(text));
    params.logit_bias.push_back(bias);
  }
  KVERN_RETURN_IF_ERROR(compute::ValidateSamplingParams(params, vocab_size));
  return params;
}

}  // namespace kvern::cli
