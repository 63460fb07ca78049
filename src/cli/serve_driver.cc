#include "cli/serve_driver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace kvern::cli {
namespace {

constexpr std::chrono::milliseconds kSamplePeriod(20);

// Takes Engine::stats() at regular times, on a thread of its own.
class Sampler {
 public:
  Sampler(const Engine& engine, const SteadyClock& clock, int64_t start_us)
      : engine_(engine), clock_(clock), start_us_(start_us), thread_([this] { Run(); }) {}

  std::vector<EngineSample> Stop() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
    Take();
    return std::move(samples_);
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    do {
      Take();
    } while (!over_.wait_for(lock, kSamplePeriod, [this] { return is_over_; }));
  }

  void Take() {
    const EngineStats stats = engine_.stats();
    samples_.push_back({.time_us = clock_.now_us() - start_us_,
                        .bytes = stats.kv.bytes,
                        .running = stats.running,
                        .waiting = stats.waiting + stats.waiting_prefix});
  }

  const Engine& engine_;
  const SteadyClock& clock_;
  const int64_t start_us_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::vector<EngineSample> samples_;
  std::thread thread_;  // last: it uses the others
};

class Driver {
 public:
  Driver(Engine& engine, const Workload& workload, TextMaker& texts, const DriveOptions& options)
      : engine_(engine),
        workload_(workload),
        texts_(texts),
        options_(options),
        states_(workload.requests.size()) {}

  ServeRun Run();

 private:
  struct Waiting {
    uint32_t num_tokens;
    size_t request;
  };

  struct State {
    size_t num_triggers = 0;        // that have not come true
    int64_t triggered_us = 0;       // when the last did
    std::vector<Waiting> waiting;   // for this one's tokens, fewest first
    size_t num_woken = 0;           // of `waiting`
    std::vector<size_t> to_cancel;  // when it has its first token
    Reply* reply = nullptr;         // while its thread waits for the answer
    bool is_cancelled = false;
    bool is_hopeless = false;  // what it waits for has failed
    std::thread thread;
  };

  using Due = std::pair<int64_t, size_t>;

  int64_t now_us() const { return clock_.now_us() - start_us_; }
  bool IsTimeUp(int64_t time_us) const {
    return options_.duration_us && time_us >= *options_.duration_us;
  }

  void Plan();
  void DispatchAll();
  void Start(size_t index, int64_t due_us, std::unique_lock<std::mutex>& lock);
  void Answer(size_t index, Request request);
  void Take(size_t index, const Chunk& chunk);
  void Conclude(size_t index, Outcome outcome, std::string error);

  // With the mutex held.
  void Notify();
  void WaitFor(std::unique_lock<std::mutex>& lock, std::chrono::microseconds time);
  void Trigger(size_t index, size_t num_tokens, bool has_ended);
  bool HasWhatItPromised(size_t index, size_t num_tokens, const Waiting& waiting) const;
  void CancelThoseMarked();

  Engine& engine_;
  const Workload& workload_;
  TextMaker& texts_;
  const DriveOptions& options_;
  const SteadyClock clock_;
  int64_t start_us_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_changed_ = false;  // since the dispatcher looked
  std::vector<State> states_;
  std::vector<RequestRecord> records_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<size_t> marked_;  // to be cancelled
  std::vector<size_t> ended_;   // whose threads can be joined
  size_t num_out_ = 0;
  size_t num_over_ = 0;
};

void Driver::Plan() {
  records_.resize(states_.size());
  for (size_t i = 0; i < states_.size(); ++i) {
    const PlannedRequest& request = workload_.requests[i];
    states_[i].num_triggers = request.after.size();
    for (const cli::Trigger& trigger : request.after) {
      CHECK(trigger.request < i);
      states_[trigger.request].waiting.push_back({trigger.num_tokens, i});
    }
    if (request.ends_with) states_[*request.ends_with].to_cancel.push_back(i);
    if (request.after.empty()) due_.push({request.delay_us, i});
    // Texts are made before the clock starts.
    for (size_t part = 0; part < request.prompt.size(); ++part) {
      const PromptPart& piece = request.prompt[part];
      if (piece.kind == PromptPart::Kind::kText) {
        texts_.Make(piece.index, piece.num_tokens, part == 0);
      }
    }
  }
  for (State& state : states_) {
    std::ranges::stable_sort(state.waiting, {}, &Waiting::num_tokens);
  }
}

ServeRun Driver::Run() {
  Plan();
  ServeRun run{.records = {}, .samples = {}, .before = engine_.stats(), .after = {}};
  start_us_ = clock_.now_us();
  Sampler sampler(engine_, clock_, start_us_);
  DispatchAll();
  run.samples = sampler.Stop();
  run.after = engine_.stats();
  run.records = std::move(records_);
  for (const RequestRecord& record : run.records) {
    run.wall_us = std::max(run.wall_us, record.end_us);
  }
  return run;
}

void Driver::DispatchAll() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_changed_ = false;
    CancelThoseMarked();
    for (const size_t index : std::exchange(ended_, {})) {
      lock.unlock();
      states_[index].thread.join();
      lock.lock();
    }
    if (options_.progress) {
      options_.progress(static_cast<double>(num_over_) / static_cast<double>(states_.size()));
    }
    const bool is_full = options_.concurrency && num_out_ >= *options_.concurrency;
    if (!due_.empty() && !is_full) {
      const auto [due_us, index] = due_.top();
      const int64_t sends_us = std::max(due_us, now_us());
      if (IsTimeUp(sends_us)) {
        due_.pop();
        ++num_over_;
        continue;
      }
      if (sends_us == due_us && due_us > now_us()) {
        WaitFor(lock, std::chrono::microseconds(due_us - now_us()));
        continue;
      }
      due_.pop();
      Start(index, options_.concurrency ? sends_us : due_us, lock);
      continue;
    }
    if (num_out_ == 0 && ended_.empty()) return;
    WaitFor(lock, std::chrono::milliseconds(100));
  }
}

// Sending and waiting for the answer block, so each request has a thread of its own.
void Driver::Start(size_t index, int64_t due_us, std::unique_lock<std::mutex>& lock) {
  ++num_out_;
  lock.unlock();  // its own record and those of requests that have ended are nobody else's
  records_[index].due_us = due_us;
  std::vector<TokenId> prompt = PromptTokens(workload_, index, texts_, records_);
  records_[index].prompt_tokens = prompt.size();
  Request request = RequestOf(std::move(prompt), workload_.requests[index].new_tokens,
                              options_.use_cache && workload_.uses_cache);
  request.on_chunk = [this, index](const Chunk& chunk) { Take(index, chunk); };
  std::thread thread(
      [this, index, request = std::move(request)]() mutable { Answer(index, std::move(request)); });
  lock.lock();
  states_[index].thread = std::move(thread);
}

void Driver::Answer(size_t index, Request request) {
  Result<Reply> reply = engine_.Submit(std::move(request));
  if (!reply.ok()) {
    Conclude(index, Outcome::kRefused, reply.error().message);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    states_[index].reply = &*reply;
    Notify();
  }
  const Result<kvern::Answer> answer = reply->Wait();
  const Report report = reply->report();
  {
    const std::lock_guard lock(mutex_);
    states_[index].reply = nullptr;
    records_[index].report = report;
  }
  if (!answer.ok()) {
    Conclude(index, Outcome::kFailed, answer.error().message);
  } else if (report.error) {
    Conclude(index, Outcome::kFailed, report.error->message);
  } else if (answer->completions.front().finish == FinishReason::kCancelled) {
    Conclude(index, Outcome::kEnded, "");
  } else {
    Conclude(index, Outcome::kDone, "");
  }
}

void Driver::Take(size_t index, const Chunk& chunk) {
  const int64_t time_us = now_us();
  if (chunk.tokens.empty()) return;
  const std::lock_guard lock(mutex_);
  RequestRecord& record = records_[index];
  if (!record.first_us) record.first_us = time_us;
  record.chunk_us.push_back(time_us);
  record.tokens.insert(record.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  Trigger(index, record.tokens.size(), false);
}

void Driver::Conclude(size_t index, Outcome outcome, std::string error) {
  const std::lock_guard lock(mutex_);
  records_[index].end_us = now_us();
  records_[index].outcome = outcome;
  records_[index].error = std::move(error);
  Trigger(index, records_[index].tokens.size(), true);
  --num_out_;
  ++num_over_;
  ended_.push_back(index);
  Notify();
}

void Driver::Notify() {
  has_changed_ = true;
  changed_.notify_one();
}

void Driver::WaitFor(std::unique_lock<std::mutex>& lock, std::chrono::microseconds time) {
  changed_.wait_for(lock, time, [this] { return has_changed_; });
}

void Driver::Trigger(size_t index, size_t num_tokens, bool has_ended) {
  State& state = states_[index];
  if (num_tokens > 0 || has_ended) {
    marked_.insert(marked_.end(), state.to_cancel.begin(), state.to_cancel.end());
    if (!state.to_cancel.empty()) Notify();
    state.to_cancel.clear();
  }
  while (state.num_woken < state.waiting.size()) {
    const Waiting& next = state.waiting[state.num_woken];
    // The last token alone is not the end: the reply is read then.
    const bool needs_end = next.num_tokens >= workload_.requests[index].new_tokens;
    if (!has_ended && (needs_end || num_tokens < next.num_tokens)) return;
    ++state.num_woken;
    State& woken = states_[next.request];
    woken.triggered_us = std::max(woken.triggered_us, now_us());
    woken.is_hopeless = woken.is_hopeless || !HasWhatItPromised(index, num_tokens, next);
    if (--woken.num_triggers > 0) continue;
    if (woken.is_hopeless) {
      ++num_over_;
      Trigger(next.request, 0, true);
      continue;
    }
    due_.push({woken.triggered_us + workload_.requests[next.request].delay_us, next.request});
    Notify();
  }
}

bool Driver::HasWhatItPromised(size_t index, size_t num_tokens, const Waiting& waiting) const {
  return num_tokens >= std::min(waiting.num_tokens, workload_.requests[index].new_tokens);
}

void Driver::CancelThoseMarked() {
  std::erase_if(marked_, [this](size_t index) {
    State& state = states_[index];
    if (state.reply != nullptr && !std::exchange(state.is_cancelled, true)) state.reply->Cancel();
    return state.is_cancelled || records_[index].outcome != Outcome::kNotSent;
  });
}

}  // namespace

std::vector<TokenId> PromptTokens(const Workload& workload, size_t request, TextMaker& texts,
                                  const std::vector<RequestRecord>& records) {
  std::vector<TokenId> prompt;
  for (const PromptPart& part : workload.requests[request].prompt) {
    std::vector<TokenId> piece;
    switch (part.kind) {
      case PromptPart::Kind::kText:
        piece = texts.Make(part.index, part.num_tokens, prompt.empty());
        break;
      case PromptPart::Kind::kPrompt:
        piece = PromptTokens(workload, part.index, texts, records);
        break;
      case PromptPart::Kind::kReply:
        for (const SampledToken& token : records[part.index].tokens) piece.push_back(token.id);
        break;
    }
    prompt.insert(prompt.end(), piece.begin(), piece.end());
  }
  return prompt;
}

Request RequestOf(std::vector<TokenId> prompt, uint32_t new_tokens, bool use_cache) {
  Request request;
  request.tokens = std::move(prompt);
  request.sampling.temperature = 0;
  request.seed = 0;
  request.max_tokens = new_tokens;
  request.ignore_end = true;
  request.cache.use = use_cache;
  request.cache.publish = use_cache;
  return request;
}

Status WarmUp(Engine& engine, const Workload& workload, TextMaker& texts) {
  for (const PromptParts& shared : workload.shared) {
    const Workload one{.requests = {{.prompt = shared, .new_tokens = 1}}};
    KVERN_ASSIGN_OR_RETURN(Reply reply,
                           engine.Submit(RequestOf(PromptTokens(one, 0, texts, {}), 1, true)));
    KVERN_RETURN_IF_ERROR(reply.Wait());
  }
  return {};
}

ServeRun Drive(Engine& engine, const Workload& workload, TextMaker& texts,
               const DriveOptions& options) {
  return Driver(engine, workload, texts, options).Run();
}

}  // namespace kvern::cli
