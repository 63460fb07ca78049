// A whole engine around the KV library, for a made-up model: the row of a token is a hash of the
// row before and the token, and the next token is read off the last row. It batches continuously,
// shares prefixes, waits for those in flight, forks, and takes wrong drafts back.
#include <algorithm>
#include <cstdio>
#include <list>

#include "kvern/kv.h"

namespace kv = kvern::kv;
using kvern::TokenId;
using Text = std::vector<TokenId>;
constexpr size_t kChunk = 16, kNumNew = 12;

struct Request {
  std::string name;
  Text tokens;         // the prompt, and then the answer
  bool forks = false;  // wants a second answer, which starts with another token
  size_t end = tokens.size() + kNumNew, num_computed = 0;
  std::optional<kv::Waiter> waiter = {};
  std::optional<kv::Sequence> sequence = {};
};

uint64_t& Row(const kvern::PagedView& view, size_t position) {
  return reinterpret_cast<uint64_t*>(view.blocks[position / 16])[position % 16];
}

class Engine {
 public:
  explicit Engine(kv::KvCache* cache) : cache_(*cache), ns_(*cache->OpenNamespace({})) {}

  template <typename... Requests>
  void Run(Requests... requests) {  // until all have their answers
    (requests_.push_back(std::move(requests)), ...);
    while (!requests_.empty()) {
      cache_.SetTime(++now_us_);
      const std::vector<kv::Event> events = cache_.TakeEvents();
      for (auto it = requests_.begin(); it != requests_.end();) {
        if (!it->sequence) Start(*it, events);
        it = it->sequence && Step(*it) ? requests_.erase(it) : std::next(it);
      }
    }
  }

 private:
  void Start(Request& request, const std::vector<kv::Event>& events) {
    const auto is_own = [&](const kv::Event& e) { return e.waiter == request.waiter->id(); };
    if (request.waiter && std::ranges::none_of(events, is_own)) return;
    const size_t size = request.tokens.size();
    // The last token is always computed: its row gives the first token of the answer.
    kv::Lease lease =
        request.waiter ? cache_.Retry(*std::exchange(request.waiter, std::nullopt))
                       : cache_.Lookup({.ns = ns_, .tokens = request.tokens, .max_hit = size - 1});
    if (lease.producer()) {
      std::printf("%s waits for %zu tokens\n", request.name.c_str(), lease.producer()->end);
      request.waiter = *cache_.Wait(lease, /*priority=*/0);
      return;
    }
    const std::string why = cache_.Explain(ns_, request.tokens).ToText();
    auto sequence = cache_.Admit(lease, {.reserve_tokens = request.end - lease.num_ram_tokens()});
    if (!sequence.ok()) return;  // no room: when another has ended
    request.sequence = *std::move(sequence);
    std::printf("%s starts: %s", request.name.c_str(), why.c_str());
  }

  // A chunk of the prompt; or a token of the answer, and a draft of the one after it.
  bool Step(Request& request) {
    kv::Sequence& sequence = *request.sequence;
    Text& text = request.tokens;
    const size_t begin = sequence.length(), end = std::min(text.size(), begin + kChunk);
    const bool is_answering = end == text.size();
    Text step(&text[begin], &text[end - 1] + 1);
    if (is_answering) step.push_back(TokenId{1});
    if (!sequence.Append(step).ok()) return false;  // no room: when another has ended
    const kvern::PagedView view = sequence.View(kv::GroupId{0});
    for (size_t i = begin; i < begin + step.size(); ++i, ++request.num_computed) {
      const uint64_t before = i == 0 ? 1 : Row(view, i - 1);
      Row(view, i) = (before + static_cast<uint64_t>(step[i - begin])) * 0x9E3779B97F4A7C15;
    }
    if (is_answering) {
      text.push_back(TokenId(Row(view, end - 1) >> 62));
      if (text.back() == step.back()) text.push_back(TokenId(Row(view, end) >> 62));
      if (!sequence.Truncate(text.size() - 1).ok()) return true;  // takes a wrong draft back
    }
    sequence.Commit(sequence.length());
    if (is_answering && std::exchange(request.forks, false)) {
      requests_.push_back({request.name + "'", text, false, request.end, 0, {}, sequence.Fork()});
      requests_.back().tokens.back() = TokenId{9};
    }
    if (text.size() < request.end) return false;
    const uint64_t last = Row(sequence.View(kv::GroupId{0}), request.end - 2);
    std::printf("%s ends: %zu rows computed, the last is %016jx\n", request.name.c_str(),
                request.num_computed, uintmax_t{last});
    return true;
  }

  kv::KvCache& cache_;
  kv::NamespaceId ns_;
  int64_t now_us_ = 0;
  std::list<Request> requests_;
};

Text Prompt(uint32_t topic, size_t num_own_tokens = 20) {
  Text text(40, TokenId{1000});  // what all requests begin with
  text.resize(40 + num_own_tokens, TokenId{topic});
  return text;
}

int main() {
  const auto store = kv::MakeHostStore([](auto, std::byte* to, const std::byte* from, uint32_t n) {
    std::copy_n(from, n * sizeof(uint64_t), to);
  });
  const kv::KvCacheOptions options{.groups = {{.block_bytes = 128}}, .budget_bytes = 20 * 128};
  const auto cache = *kv::KvCache::Make(options, store.get());
  Engine engine(cache.get());
  engine.Run(Request{"A", Prompt(1)}, Request{"B", Prompt(2)}, Request{"C", Prompt(3), true});
  engine.Run(Request{"A again", Prompt(1)}, Request{"D", Prompt(4, 240)});  // D needs nearly all
  engine.Run(Request{"A after D", Prompt(1)});
}
