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

// Takes Stats() at regular times, on a thread of its own.
class Sampler {
 public:
  Sampler(ServeTarget& target, const SteadyClock& clock, int64_t start_us)
      : target_(target), clock_(clock), start_us_(start_us) {
    if (target.view() != EngineView::kNothing) thread_ = std::thread([this] { Run(); });
  }

  std::vector<EngineSample> Stop() {
    if (!thread_.joinable()) return {};
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
    } while (!over_.wait_for(lock, target_.stats_period(), [this] { return is_over_; }));
  }

  void Take() {
    const Result<EngineStats> stats = target_.Stats();
    if (!stats.ok()) return;  // there is one sample less
    samples_.push_back({.time_us = clock_.now_us() - start_us_,
                        .bytes = stats->kv.bytes,
                        .running = stats->running,
                        .waiting = stats->waiting + stats->waiting_prefix});
  }

  ServeTarget& target_;
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
  Driver(ServeTarget& target, const Workload& workload, TextMaker& texts,
         const DriveOptions& options)
      : target_(target),
        workload_(workload),
        texts_(texts),
        options_(options),
        states_(workload.requests.size()) {}

  Result<ServeRun> Run();

 private:
  struct Waiting {
    uint32_t num_tokens;
    size_t request;
  };

  struct State {
    size_t num_triggers = 0;          // that have not come true
    int64_t triggered_us = 0;         // when the last did
    std::vector<Waiting> waiting;     // for this one's tokens, fewest first
    size_t num_woken = 0;             // of `waiting`
    std::vector<size_t> to_cancel;    // when it has its first token
    PendingAnswer* answer = nullptr;  // while its thread waits for it
    bool is_quoted = false;           // by a later prompt
    bool is_cancelled = false;
    bool is_hopeless = false;  // what it waits for has failed
    std::thread thread;
  };

  using Due = std::pair<int64_t, size_t>;

  int64_t now_us() const { return clock_.now_us() - start_us_; }
  bool IsTimeUp(int64_t time_us) const {
    return options_.duration_us && time_us >= *options_.duration_us;
  }

  Status Plan();
  void DispatchAll();
  void Start(size_t index, int64_t due_us, std::unique_lock<std::mutex>& lock);
  Result<AskedRequest> RequestFor(size_t index);
  void Answer(size_t index, Result<AskedRequest> asked);
  void Take(size_t index, const AnswerPiece& piece);
  void Conclude(size_t index, AnswerEnd end);

  // With the mutex held.
  void Notify();
  void WaitFor(std::unique_lock<std::mutex>& lock, std::chrono::microseconds time);
  void Trigger(size_t index, size_t num_tokens, bool has_ended);
  bool HasWhatItPromised(size_t index, size_t num_tokens, const Waiting& waiting) const;
  void CancelThoseMarked();

  ServeTarget& target_;
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

Status Driver::Plan() {
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
        KVERN_RETURN_IF_ERROR(texts_.Make(piece.index, piece.num_tokens, part == 0));
      } else if (piece.kind == PromptPart::Kind::kReply) {
        states_[piece.index].is_quoted = true;
      }
    }
  }
  for (State& state : states_) {
    std::ranges::stable_sort(state.waiting, {}, &Waiting::num_tokens);
  }
  return {};
}

Result<ServeRun> Driver::Run() {
  KVERN_RETURN_IF_ERROR(Plan());
  ServeRun run{.records = {}, .samples = {}, .view = target_.view()};
  const bool has_stats = run.view != EngineView::kNothing;
  if (has_stats) {
    KVERN_ASSIGN_OR_RETURN(run.before, target_.Stats());
  }
  start_us_ = clock_.now_us();
  Sampler sampler(target_, clock_, start_us_);
  DispatchAll();
  run.samples = sampler.Stop();
  if (has_stats) {
    KVERN_ASSIGN_OR_RETURN(run.after, target_.Stats());
  }
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
  Result<AskedRequest> asked = RequestFor(index);
  if (asked.ok()) records_[index].prompt_tokens = asked->prompt.size();
  std::thread thread(
      [this, index, asked = std::move(asked)]() mutable { Answer(index, std::move(asked)); });
  lock.lock();
  states_[index].thread = std::move(thread);
}

Result<AskedRequest> Driver::RequestFor(size_t index) {
  KVERN_ASSIGN_OR_RETURN(auto prompt, PromptTokens(workload_, index, texts_, records_));
  return AskedRequest{.prompt = std::move(prompt),
                      .new_tokens = workload_.requests[index].new_tokens,
                      .use_cache = options_.use_cache && workload_.uses_cache,
                      .needs_tokens = states_[index].is_quoted};
}

void Driver::Answer(size_t index, Result<AskedRequest> asked) {
  if (!asked.ok()) {
    return Conclude(index, {.outcome = Outcome::kFailed, .error = asked.error()});
  }
  const std::unique_ptr<PendingAnswer> answer = target_.Ask(
      std::move(asked).value(), [this, index](const AnswerPiece& piece) { Take(index, piece); });
  {
    const std::lock_guard lock(mutex_);
    states_[index].answer = answer.get();
    Notify();
  }
  AnswerEnd end = answer->Wait();
  {
    const std::lock_guard lock(mutex_);
    states_[index].answer = nullptr;
  }
  Conclude(index, std::move(end));
}

void Driver::Take(size_t index, const AnswerPiece& piece) {
  const int64_t time_us = now_us();
  const std::lock_guard lock(mutex_);
  RequestRecord& record = records_[index];
  if (!record.first_us) record.first_us = time_us;
  record.chunk_us.push_back(time_us);
  record.num_tokens += piece.num_tokens;
  record.tokens.insert(record.tokens.end(), piece.tokens.begin(), piece.tokens.end());
  Trigger(index, record.num_tokens, false);
}

void Driver::Conclude(size_t index, AnswerEnd end) {
  const std::lock_guard lock(mutex_);
  RequestRecord& record = records_[index];
  record.end_us = now_us();
  record.outcome = end.outcome;
  if (end.error) record.error = std::move(end.error->message);
  record.failed_by = std::move(end.failed_by);
  if (end.num_tokens) record.num_tokens = *end.num_tokens;
  if (record.tokens.empty()) record.tokens = std::move(end.tokens);
  record.cached_tokens = end.cached_tokens;
  record.queue_us = end.queue_us;
  record.blocks_peak = end.blocks_peak;
  Trigger(index, record.num_tokens, true);
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
    if (state.answer != nullptr && !std::exchange(state.is_cancelled, true)) {
      state.answer->Cancel();
    }
    return state.is_cancelled || records_[index].outcome != Outcome::kNotSent;
  });
}

}  // namespace

Result<std::vector<TokenId>> PromptTokens(const Workload& workload, size_t request,
                                          TextMaker& texts,
                                          const std::vector<RequestRecord>& records) {
  std::vector<TokenId> prompt;
  for (const PromptPart& part : workload.requests[request].prompt) {
    std::vector<TokenId> piece;
    switch (part.kind) {
      case PromptPart::Kind::kText: {
        KVERN_ASSIGN_OR_RETURN(piece, texts.Make(part.index, part.num_tokens, prompt.empty()));
        break;
      }
      case PromptPart::Kind::kPrompt: {
        KVERN_ASSIGN_OR_RETURN(piece, PromptTokens(workload, part.index, texts, records));
        break;
      }
      case PromptPart::Kind::kReply:
        for (const SampledToken& token : records[part.index].tokens) piece.push_back(token.id);
        break;
    }
    prompt.insert(prompt.end(), piece.begin(), piece.end());
  }
  return prompt;
}

Result<std::vector<SampledToken>> AskAndWait(ServeTarget& target, AskedRequest request) {
  std::vector<SampledToken> tokens;
  const auto answer = target.Ask(std::move(request), [&tokens](const AnswerPiece& piece) {
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
  });
  const AnswerEnd end = answer->Wait();
  if (end.error) {
    const std::string server = target.description();
    return Errorf(end.error->code, "{}{}{}", server, server.empty() ? "" : ": ",
                  end.error->message);
  }
  return tokens;
}

Status WarmUp(ServeTarget& target, const Workload& workload, TextMaker& texts) {
  for (const PromptParts& shared : workload.shared) {
    const Workload one{.requests = {{.prompt = shared, .new_tokens = 1}}};
    KVERN_ASSIGN_OR_RETURN(auto prompt, PromptTokens(one, 0, texts, {}));
    KVERN_RETURN_IF_ERROR(AskAndWait(target, {.prompt = std::move(prompt)}));
  }
  return {};
}

Result<ServeRun> Drive(ServeTarget& target, const Workload& workload, TextMaker& texts,
                       const DriveOptions& options) {
  return Driver(target, workload, texts, options).Run();
}

}  // namespace kvern::cli
