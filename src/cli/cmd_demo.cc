// kvern demo: one document and three questions without and with the KV cache, and what one more
// token costs at growing positions.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/progress.h"
#include "cli/reply_stats.h"
#include "cli/step_costs.h"
#include "engine/generation.h"
#include "text/chat_prompt.h"

namespace kvern::cli {
namespace {

constexpr std::string_view kDocument =
    "A quern is a pair of round stones that grinds grain by hand. The lower stone lies still and "
    "is called the bed. The upper stone turns and is called the runner. A wooden handle near the "
    "edge of the runner is pushed around, and grain is poured through the hole in its middle. The "
    "grain moves outward between the stones and leaves at the rim as flour. Querns were made of "
    "basalt, sandstone and granite. Basalt was liked best, because its small holes stay sharp "
    "while the stone wears down. In the Roman army every group of eight soldiers carried one quern "
    "on a mule. An hour of grinding gave about two kilograms of flour, enough for bread for four "
    "people. In Scotland the miller's law of 1284 forbade people to use their own querns, so that "
    "they had to pay the miller, but many families hid theirs and used them until about 1850. "
    "Whoever grinds the same grain between the same stones gets the same flour every time.";

constexpr std::string_view kQuestions[] = {
    "Which stone turns?",
    "Why was basalt liked best?",
    "How many soldiers shared one quern?",
};

constexpr size_t kRepeatedTokens = 1024;

struct DemoFlags {
  EngineFlags engine;
  uint32_t max_new_tokens = 24;
  std::string chart_file;
};

// A step that gave a token.
struct Step {
  size_t position;  // tokens in front of it
  bool is_first;    // of a reply: it computes what is new of the prompt, too
  double ms;
  std::vector<float> logits;
};

struct DemoAnswer {
  std::string text;
  size_t num_prompt_tokens;
  size_t num_kept_tokens;
};

struct Conversation {
  std::vector<DemoAnswer> answers;
  std::vector<Step> steps;
  uint64_t kv_bytes = 0;  // at the end
  double seconds = 0;
};

// Asks all questions in one conversation under one strategy.
class Interview {
 public:
  Interview(const DemoFlags& flags, engine::OpenedModel* model, const text::ChatTemplate* chat,
            const kv::Strategy& strategy)
      : flags_(flags),
        model_(*model),
        chat_(*chat),
        generation_(&model->executor(), model->MakeGenerationOptions(strategy)) {}

  Result<Conversation> Run(const std::string& what) {
    Progress progress(what);
    const auto start = Clock::now();
    for (const std::string_view question : kQuestions) {
      const bool is_first = messages_.empty();
      const std::string content =
          is_first ? fmt::format("{}\n\n{}", kDocument, question) : std::string(question);
      messages_.push_back({{"role", "user"}, {"content", content}});
      KVERN_RETURN_IF_ERROR(Ask(progress));
      messages_.push_back({{"role", "assistant"}, {"content", conversation_.answers.back().text}});
    }
    conversation_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const kv::CacheUsage usage = generation_.cache_usage();
    conversation_.kv_bytes = usage.bytes_allocated;
    return std::move(conversation_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  Status Ask(Progress& progress) {
    engine::GenerationRequest request;
    KVERN_ASSIGN_OR_RETURN(
        request.prompt, text::EncodeChat(model_.tokenizer(), chat_,
                                         {.messages = messages_, .now = text::CurrentLocalTime()}));
    request.sampling.temperature = 0;
    request.max_new_tokens = flags_.max_new_tokens;
    KVERN_RETURN_IF_ERROR(generation_.Start(std::move(request)));
    const size_t num_prompt = generation_.num_prompt_tokens();
    auto start = Clock::now();
    bool is_first = true;
    while (!generation_.finish_reason()) {
      const size_t position = generation_.tokens().size();
      KVERN_ASSIGN_OR_RETURN(const auto token, generation_.Step());
      if (!token) continue;
      const std::chrono::duration<double, std::milli> elapsed = Clock::now() - start;
      const auto logits = generation_.last_logits();
      conversation_.steps.push_back(
          {position, is_first, elapsed.count(), {logits.begin(), logits.end()}});
      is_first = false;
      progress.Update(static_cast<double>(conversation_.steps.size()) /
                      static_cast<double>(flags_.max_new_tokens * std::size(kQuestions)));
      start = Clock::now();
    }
    conversation_.answers.push_back(
        {model_.tokenizer().Decode(generation_.tokens().subspan(num_prompt), false), num_prompt,
         generation_.num_kept_tokens()});
    return {};
  }

  const DemoFlags& flags_;
  engine::OpenedModel& model_;
  const text::ChatTemplate& chat_;
  engine::Generation generation_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
  Conversation conversation_;
};

// The number of steps that gave the same logits, bit for bit.
size_t CountIdenticalSteps(const Conversation& a, const Conversation& b) {
  size_t count = 0;
  for (size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i) {
    const std::vector<float>& x = a.steps[i].logits;
    const std::vector<float>& y = b.steps[i].logits;
    count += a.steps[i].position == b.steps[i].position && x.size() == y.size() &&
             std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  }
  return count;
}

void PrintAnswers(const Conversation& without, const Conversation& with) {
  for (size_t i = 0; i < std::size(kQuestions); ++i) {
    const DemoAnswer& answer = with.answers[i];
    fmt::print("\nQ: {}\nA: {}\n", kQuestions[i], answer.text);
    fmt::print("   prompt {} tokens: computed {} without the cache, {} with it\n",
               answer.num_prompt_tokens, without.answers[i].num_prompt_tokens,
               answer.num_prompt_tokens - answer.num_kept_tokens);
  }
}

// Text to stand before a token at any position: the document, again and again.
std::vector<TokenId> RepeatDocument(const text::Tokenizer& tokenizer) {
  const auto once = tokenizer.Encode(kDocument, {.add_special = true});
  std::vector<TokenId> text;
  while (text.size() < kRepeatedTokens) text.insert(text.end(), once.begin(), once.end());
  return text;
}

bool AllSame(const std::vector<StepCost>& costs) {
  return std::all_of(costs.begin(), costs.end(), [](const StepCost& cost) { return cost.is_same; });
}

Status Demo(const DemoFlags& flags) {
  if (flags.max_new_tokens < 2) {
    return Errorf(ErrorCode::kInvalidArgument, "-n: {} is less than 2 tokens",
                  flags.max_new_tokens);
  }
  // Found out before the minutes of measuring, not after.
  if (!flags.chart_file.empty()) KVERN_RETURN_IF_ERROR(WriteTextFile(flags.chart_file, ""));
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* cached, StrategyFromFlags(flags.engine));
  KVERN_ASSIGN_OR_RETURN(const kv::Strategy* uncached, kv::FindStrategy("none"));
  KVERN_ASSIGN_OR_RETURN(engine::OpenedModel model, OpenFromFlags(flags.engine));
  KVERN_ASSIGN_OR_RETURN(const auto source, model.gguf().GetString("tokenizer.chat_template"));
  KVERN_ASSIGN_OR_RETURN(const text::ChatTemplate chat,
                         text::MakeChatTemplate(model.tokenizer(), std::string(source)));
  KVERN_ASSIGN_OR_RETURN(const Conversation without,
                         Interview(flags, &model, &chat, *uncached).Run("Without the KV cache"));
  KVERN_ASSIGN_OR_RETURN(const Conversation with,
                         Interview(flags, &model, &chat, *cached).Run("With the KV cache"));

  KVERN_ASSIGN_OR_RETURN(const std::vector<StepCost> costs,
                         MeasureStepCosts(model, *cached, RepeatDocument(model.tokenizer())));

  const size_t num_identical = CountIdenticalSteps(without, with);
  fmt::print("One document, three questions\n");
  PrintAnswers(without, with);
  fmt::print("\nwhole conversation: {:.1f} s without the cache, {:.1f} s with it\n",
             without.seconds, with.seconds);
  fmt::print("KV cache at the end: {} ({} a token)\n", FormatBytes(with.kv_bytes),
             FormatBytes(model.layout().token_bytes()));
  fmt::print("logits of {} of {} steps are identical, bit for bit\n", num_identical,
             with.steps.size());
  fmt::print("\nWhat one more token costs\n\n{}", FormatStepCosts(costs));
  if (!flags.chart_file.empty()) {
    KVERN_RETURN_IF_ERROR(WriteTextFile(flags.chart_file, DrawStepCosts(costs)));
    fmt::print("\nchart: {}\n", flags.chart_file);
  }
  if (num_identical == with.steps.size() && num_identical == without.steps.size() &&
      AllSame(costs)) {
    return {};
  }
  return Errorf(ErrorCode::kIo, "the cache changed the answer: please report this as a bug");
}

}  // namespace

Action DeclareDemo(CLI::App& app) {
  const auto flags = std::make_shared<DemoFlags>();
  AddEngineFlags(app, flags->engine);
  app.add_option("-n,--predict", flags->max_new_tokens, "Tokens of each answer at most")
      ->capture_default_str();
  app.add_option("--chart", flags->chart_file, "SVG file for a chart of time against position");
  return [flags] { return Demo(*flags); };
}

}  // namespace kvern::cli
