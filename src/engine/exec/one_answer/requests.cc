#include "engine/exec/one_answer/requests.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/mapped_file.h"

namespace kvern::engine::one_answer {
namespace {

constexpr const char* kDocs[] = {"numerics.md",      "kv-cache.md",      "record-format.md",
                                 "performance.md",   "fragmentation.md", "kv-library.md",
                                 "kv-strategies.md", "tokenizers.md",    "gguf.md",
                                 "eviction.md",      "prefix-tree.md"};

using Tokens = std::vector<TokenId>;

SamplingParams Unfiltered(float temperature) {
  SamplingParams params;
  params.temperature = temperature;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  return params;
}

class SetMaker {
 public:
  SetMaker(const text::Tokenizer& tokenizer, std::span<const TokenId> docs,
           const AnswerFunction& answer)
      : tokenizer_(tokenizer), docs_(docs), answer_(answer) {}

  Result<std::vector<Case>> Make();

 private:
  // `size` tokens of the docs from a place that goes with `place`.
  Tokens Text(size_t place, size_t size) const {
    const size_t begin = place * 997 % (docs_.size() - size);
    return {docs_.begin() + static_cast<ptrdiff_t>(begin),
            docs_.begin() + static_cast<ptrdiff_t>(begin + size)};
  }
  static Tokens Join(Tokens first, const Tokens& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  Case& Add(std::string name, Tokens prompt, size_t max_tokens);
  Case& AddGreedy(std::string name, Tokens prompt, size_t max_tokens);
  Case& Copy(std::string name, const std::string& of);
  const Case& Find(const std::string& name) const;

  void AddSampling();
  void AddPenalties();
  void AddLengths();
  void AddPrefixes();
  void AddPrivate();
  void AddCompletions();
  void AddChats();
  void AddLong();
  Status AddStops();
  Status AddConversations();
  void SpreadPriorities();

  const text::Tokenizer& tokenizer_;
  const std::span<const TokenId> docs_;
  const AnswerFunction& answer_;
  std::vector<Case> cases_;
};

// Sampled with the defaults.
Case& SetMaker::Add(std::string name, Tokens prompt, size_t max_tokens) {
  Case made;
  made.name = std::move(name);
  made.is_short = prompt.size() + max_tokens <= 320;
  made.request.tokens = std::move(prompt);
  made.request.max_tokens = max_tokens;
  made.request.seed = 1000 + cases_.size();
  cases_.push_back(std::move(made));
  return cases_.back();
}

Case& SetMaker::AddGreedy(std::string name, Tokens prompt, size_t max_tokens) {
  Case& made = Add(std::move(name), std::move(prompt), max_tokens);
  made.request.sampling.temperature = 0;
  made.is_plain_greedy = true;
  return made;
}

// The same request with another seed.
Case& SetMaker::Copy(std::string name, const std::string& of) {
  Case made = Find(of);
  made.name = std::move(name);
  made.request.seed = 1000 + cases_.size();
  cases_.push_back(std::move(made));
  return cases_.back();
}

const Case& SetMaker::Find(const std::string& name) const {
  return *std::ranges::find(cases_, name, &Case::name);
}

void SetMaker::AddSampling() {
  AddGreedy("greedy, 20 logprobs", Text(1, 64), 24).request.sampling.num_logprobs = 20;
  SamplingParams& cool = Add("temperature 0.3", Text(2, 45), 16).request.sampling;
  cool.temperature = 0.3f;
  cool.num_logprobs = 5;
  SamplingParams& hot = Add("temperature 1.5, no filter", Text(3, 80), 24).request.sampling;
  hot = Unfiltered(1.5f);
  hot.num_logprobs = 5;
  SamplingParams& top_p = Add("top-p 0.5", Text(4, 33), 16).request.sampling;
  top_p = Unfiltered(1);
  top_p.top_p = 0.5f;
  SamplingParams& min_p = Add("min-p 0.2", Text(5, 31), 16).request.sampling;
  min_p = Unfiltered(1.2f);
  min_p.min_p = 0.2f;
  SamplingParams& top_k = Add("top-k 3", Text(6, 48), 16).request.sampling;
  top_k = Unfiltered(1);
  top_k.top_k = 3;
  Add("top-k 1", Text(7, 20), 8).request.sampling.top_k = 1;
}

void SetMaker::AddPenalties() {
  SamplingParams& repetition = AddGreedy("repetition penalty", Text(8, 70), 24).request.sampling;
  repetition.repetition_penalty = 1.3f;
  SamplingParams& all = Add("repetition penalty on all", Text(9, 90), 24).request.sampling;
  all.repetition_penalty = 1.1f;
  all.repetition_window = -1;
  AddGreedy("presence penalty", Text(10, 40), 24).request.sampling.presence_penalty = 1.5f;
  SamplingParams& frequency = Add("frequency penalty", Text(11, 50), 24).request.sampling;
  frequency.frequency_penalty = 0.8f;
  frequency.num_logprobs = 5;
  SamplingParams& three = Add("all penalties", Text(12, 100), 32).request.sampling;
  three.repetition_penalty = 1.2f;
  three.presence_penalty = 0.5f;
  three.frequency_penalty = 0.3f;
  SamplingParams& bias = AddGreedy("logit bias", Text(13, 36), 16).request.sampling;
  bias.logit_bias = {{docs_[5], 8.0f}, {docs_[6], -100.0f}, {docs_[7], 4.0f}, {docs_[8], 6.5f}};
  bias.num_logprobs = 5;
  for (Case& made : cases_) {
    const SamplingParams& p = made.request.sampling;
    made.is_plain_greedy = made.is_plain_greedy && p.repetition_penalty == 1 &&
                           p.presence_penalty == 0 && p.frequency_penalty == 0 &&
                           p.logit_bias.empty();
  }
}

void SetMaker::AddLengths() {
  AddGreedy("one token", Text(14, 1), 24);
  Add("two tokens", Text(15, 2), 8);
  AddGreedy("15 tokens", Text(16, 15), 4);
  Add("a block", Text(17, 16), 17);
  AddGreedy("17 tokens", Text(18, 17), 1);
  Add("a chunk", Text(19, 128), 2);
  AddGreedy("a chunk and one", Text(20, 129), 96);
  Add("96 new tokens", Text(21, 37), 96).request.ignore_end = true;
}

void SetMaker::AddPrefixes() {
  const Tokens aligned = Text(22, 160), ragged = Text(23, 203);
  AddGreedy("aligned prefix 1", Join(aligned, Text(24, 30)), 16);
  Add("aligned prefix 2", Join(aligned, Text(25, 41)), 16);
  AddGreedy("aligned prefix 3", Join(aligned, Text(26, 16)), 24);
  AddGreedy("the aligned prefix itself", aligned, 20);
  Copy("the aligned prefix again", "the aligned prefix itself");
  Add("ragged prefix 1", Join(ragged, Text(27, 5)), 16).request.sampling.num_logprobs = 5;
  AddGreedy("ragged prefix 2", Join(ragged, Text(28, 60)), 16);
  Add("ragged prefix 3", Join(ragged, Text(29, 19)), 12);
  Add("the ragged prefix itself", ragged, 20);
  Copy("the ragged prefix, another seed", "the ragged prefix itself");
  Tokens edited = Join(aligned, Text(24, 30));
  edited[87] = edited[3];
  AddGreedy("edited in the middle", edited, 16);
  edited.erase(edited.begin() + 100, edited.begin() + 117);
  Add("cut in the middle", edited, 16);
}

void SetMaker::AddPrivate() {
  const Tokens prompt = Find("aligned prefix 1").request.tokens;
  AddGreedy("takes and gives nothing", prompt, 16).request.cache.use = false;
  AddGreedy("gives nothing", prompt, 24).request.cache.publish = false;
  Case& other = AddGreedy("another tenant", prompt, 16);
  other.request.tenant = "another";
  Case& group = Add("another tenant, its group", Join(prompt, Text(30, 20)), 16);
  group.request.tenant = "a third";
  group.request.cache_group = "another";
  group.request.cache.retention = kv::Retention::kHigh;
}

void SetMaker::AddCompletions() {
  Case& two = Add("two completions", Text(31, 40), 16);
  two.request.n = 2;
  two.request.sampling.temperature = 1;
  two.request.sampling.num_logprobs = 5;
  Case& four = Add("four completions of whole blocks", Text(32, 64), 20);
  four.request.n = 4;
  four.request.sampling.temperature = 1.1f;
  AddGreedy("two greedy completions", Text(33, 29), 20).request.n = 2;
  Add("four completions of a long prompt", Text(34, 700), 40).request.n = 4;
}

void SetMaker::AddChats() {
  const auto chat = [&](const std::string& question) {
    return tokenizer_.Encode(
        "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n",
        {.parse_special = true});
  };
  AddGreedy("a chat", chat("What is the capital of France? Answer in one word."), 64).is_stopped =
      true;
  Copy("a chat that goes on", "a chat").is_stopped = false;
  cases_.back().request.ignore_end = true;
  Add("a sampled chat", chat("Name a colour and say why you like it."), 64);
}

void SetMaker::AddLong() {
  const Tokens book = Text(35, 4000);
  const auto first = [&](size_t size) { return Tokens(book.begin(), book.begin() + size); };
  AddGreedy("512 tokens", Text(36, 512), 16).request.sampling.num_logprobs = 5;
  Add("400 tokens", first(400), 48);
  AddGreedy("1,000 tokens", first(1000), 32);
  Add("2,047 tokens", first(2047), 32);
  AddGreedy("4,000 tokens", book, 32).request.sampling.num_logprobs = 5;
  Tokens edited = book;
  edited[2100] = edited[1];
  Add("4,000 tokens, edited", edited, 96);
}

// A text of so many ASCII characters that comes in an answer, after a part of it.
std::optional<std::string> StopIn(const std::string& text, double part) {
  constexpr size_t kSize = 3;
  for (auto at = static_cast<size_t>(part * static_cast<double>(text.size()));
       at + kSize <= text.size(); ++at) {
    std::string stop = text.substr(at, kSize);
    if (std::ranges::all_of(stop, [](char c) { return c > ' ' && c < 127; })) return stop;
  }
  return std::nullopt;
}

Status SetMaker::AddStops() {
  const Request greedy = Find("greedy, 20 logprobs").request;
  const Request sampled = Find("temperature 1.5, no filter").request;
  for (const Request& request : {greedy, sampled}) {
    KVERN_ASSIGN_OR_RETURN(const RequestAnswer answer, answer_(request));
    const CompletionAnswer& said = answer.completions[0];
    const auto stop = StopIn(said.text, 0.5), late = StopIn(said.text, 0.8);
    if (!stop || !late) {
      return Errorf(ErrorCode::kUnsupported, "'{}' has no stop text in it: change the request",
                    said.text);
    }
    const std::string kind = request.sampling.temperature > 0 ? ", sampled" : ", greedy";
    // With the same seed: what is said is the same as far as it goes.
    const auto add = [&](const std::string& name) -> Request& {
      Case& made = Add(name + kind, request.tokens, *request.max_tokens);
      made.request.sampling = request.sampling;
      made.request.seed = request.seed;
      made.is_stopped = true;
      return made.request;
    };
    add("a stop text").stop = {*stop};
    add("a stop token").stop_tokens = {said.tokens[said.tokens.size() / 2].id};
    add("stops that come late or never").stop = {"\n\n\n\n", *stop + "never", *late};
  }
  return {};
}

Status SetMaker::AddConversations() {
  for (const char* name : {"greedy, 20 logprobs", "ragged prefix 2"}) {
    const Request request = Find(name).request;
    KVERN_ASSIGN_OR_RETURN(const RequestAnswer answer, answer_(request));
    Tokens prompt = request.tokens;
    for (const SampledToken& token : answer.completions[0].tokens) prompt.push_back(token.id);
    AddGreedy(std::string("what was said, gone on with: ") + name, prompt, 16);
    Add(std::string("what was said, answered: ") + name, Join(prompt, Text(37, 21)), 16);
  }
  return {};
}

void SetMaker::SpreadPriorities() {
  for (size_t i = 0; i < cases_.size(); ++i) {
    cases_[i].request.priority = static_cast<int>(i % 3) - 1;
  }
}

Result<std::vector<Case>> SetMaker::Make() {
  cases_.reserve(128);  // Add() gives references
  AddSampling();
  AddPenalties();
  AddLengths();
  AddPrefixes();
  AddPrivate();
  AddCompletions();
  AddChats();
  KVERN_RETURN_IF_ERROR(AddStops());
  KVERN_RETURN_IF_ERROR(AddConversations());
  AddLong();
  SpreadPriorities();
  return std::move(cases_);
}

}  // namespace

Result<std::vector<TokenId>> ReadDocs(const text::Tokenizer& tokenizer, const std::string& folder) {
  Tokens docs;
  for (const char* const name : kDocs) {
    KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(folder + "/" + name));
    const Tokens tokens = tokenizer.Encode(text, {});
    docs.insert(docs.end(), tokens.begin(), tokens.end());
  }
  return docs;
}

Result<std::vector<Case>> MakeCases(const text::Tokenizer& tokenizer, std::span<const TokenId> docs,
                                    const AnswerFunction& answer) {
  return SetMaker(tokenizer, docs, answer).Make();
}

SharedPrefixLoad MakeSharedPrefixLoad(std::span<const TokenId> docs) {
  SharedPrefixLoad load;
  for (size_t i = 0; i < load.num_requests; ++i) {
    Case made;
    made.name = "tail " + std::to_string(i);
    Request& request = made.request;
    request.tokens.assign(docs.begin(), docs.begin() + static_cast<ptrdiff_t>(load.prefix_tokens));
    // Where tails begin they differ: no common token may be taken for a part of the prefix. One
    // row more than whole blocks: a tail and 16 tokens said after it end with a block.
    request.tokens.push_back(static_cast<TokenId>(1000 + i));
    const auto tail = docs.subspan(5000 + 100 * i, (1 + i % 4) * 16);
    request.tokens.insert(request.tokens.end(), tail.begin(), tail.end());
    request.max_tokens = load.max_tokens;
    request.ignore_end = true;
    request.seed = 5000 + i;
    request.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    load.cases.push_back(std::move(made));
  }
  return load;
}

}  // namespace kvern::engine::one_answer
