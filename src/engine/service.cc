#include "engine/service.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_name.h"
#include "engine/collect.h"
#include "engine/mailbox.h"
#include "engine/messages.h"
#include "engine/reply_state.h"
#include "engine/request_check.h"
#include "text/chat_prompt.h"

namespace kvern {

using engine::Core;
using engine::EngineParts;
using engine::Mailbox;
using engine::ReplyHome;
using engine::ReplyState;

namespace {

constexpr int64_t kStatsPeriodUs = 10'000;
constexpr int64_t kMaxSleepUs = 60'000'000;
constexpr size_t kMaxTextBytes = size_t{1} << 30;

uint64_t DrawSeed() {
  std::random_device device;
  // Readers of JSON may keep no more than 53 bits, and the seed must give the same answer again.
  return (uint64_t{device()} << 32 | device()) >> 11;
}

Error OutOfMemory() {
  return Errorf(ErrorCode::kOutOfMemory, "out of memory for the request: send a smaller one");
}

}  // namespace

// ---- Reply

struct Reply::Impl final : ReplyState {
  using ReplyState::ReplyState;
};

Reply::Reply(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Reply::Reply(Reply&&) noexcept = default;

Reply& Reply::operator=(Reply&& other) noexcept {
  if (impl_ && impl_ != other.impl_) impl_->Abandon();
  impl_ = std::move(other.impl_);
  return *this;
}

Reply::~Reply() {
  if (impl_) impl_->Abandon();
}

uint64_t Reply::id() const { return impl_->id(); }
std::optional<Chunk> Reply::Next() { return impl_->Next({}); }
std::optional<Chunk> Reply::Next(int64_t timeout_us) { return impl_->Next(timeout_us); }
bool Reply::finished() const { return impl_->IsReadToTheEnd(); }
void Reply::Cancel() { impl_->Cancel(); }
Report Reply::report() const { return impl_->GetReport(); }

Result<Answer> Reply::Wait() {
  Answer answer;
  answer.completions.resize(impl_->num_completions());
  while (std::optional<Chunk> chunk = Next()) {
    Collect(*chunk, answer.completions[chunk->completion]);
  }
  bool all_failed = true;
  for (size_t i = 0; i < answer.completions.size(); ++i) {
    answer.completions[i].finish = impl_->FinishOf(i);
    all_failed = all_failed && answer.completions[i].finish == FinishReason::kFailed;
  }
  answer.report = report();
  if (all_failed && answer.report.error) return *answer.report.error;
  return answer;
}

// ---- Engine

struct Engine::Impl {
  Impl(EngineParts given, std::unique_ptr<Core> made, engine::ReceiptModel model,
       size_t max_waiting);
  ~Impl();

  // Any thread.
  Result<std::vector<TokenId>> PromptOf(const Request& request) const;
  Status Prepare(Request& request) const;
  Result<std::shared_ptr<Reply::Impl>> Submit(Request request);
  Error CountRefusal(Error error);
  Result<kv::NamespaceId> FindNamespace(const Request& request);
  std::optional<kv::NamespaceId> FindKnownNamespace(const Request& request);
  void Drain();

  // The engine's thread.
  void Run();
  Status SubmitNow(Core& target, Request request, int64_t arrival_us,
                   const std::shared_ptr<ReplyState>& reply);
  Result<kv::NamespaceId> OpenNamespace(Core& target, const Request& request);
  void CompleteFinished();
  void PublishStats(const Core& source);
  std::vector<Report> ReportLive(const Core& source) const;

  const EngineParts parts;
  const std::shared_ptr<ReplyHome> home = std::make_shared<ReplyHome>();
  const Result<text::ChatTemplate> chat_template;
  const size_t max_waiting;
  std::atomic<uint64_t> last_id{0};

  // The engine's thread alone.
  std::unique_ptr<Core> core;
  std::unordered_map<ReplyState*, std::shared_ptr<ReplyState>> live;
  int64_t stats_us = 0;  // when they were published

  std::mutex mutex;
  std::condition_variable ended;
  bool is_draining = false;
  size_t num_live = 0;       // those on their way to the core included
  uint64_t num_refused = 0;  // that the core never saw
  EngineStats stats;
  std::map<std::string, kv::NamespaceId> namespaces;  // by SharingGroupOf(), for Explain()

  std::thread thread;
};

namespace {

Result<text::ChatTemplate> ParseTemplate(const EngineParts& parts) {
  if (parts.chat_template.empty() || parts.core.tokenizer == nullptr) {
    return Errorf(ErrorCode::kUnsupported, "{}: has no chat template: send text or tokens",
                  parts.model_name);
  }
  return text::MakeChatTemplate(*parts.core.tokenizer, parts.chat_template);
}

}  // namespace

Engine::Impl::Impl(EngineParts given, std::unique_ptr<Core> made, engine::ReceiptModel model,
                   size_t max_waiting)
    : parts(std::move(given)),
      chat_template(ParseTemplate(parts)),
      max_waiting(max_waiting),
      core(std::move(made)) {
  home->model = std::move(model);
  home->context = parts.core.executor->info().max_positions;
  PublishStats(*core);
  thread = std::thread([this] { Run(); });
  home->mailbox.SetOwner(thread.get_id());
}

Engine::Impl::~Impl() {
  CHECK(!home->mailbox.IsOwner());  // on_chunk destroys the engine that calls it
  home->mailbox.Close();
  thread.join();
}

void Engine::Impl::Run() {
  NameThisThread("kvern-engine");
  while (!home->mailbox.closed()) {
    if (home->mailbox.RunAll(*core)) {
      PublishStats(*core);
      CompleteFinished();
    }
    const bool has_worked = core->Step();
    const int64_t now_us = parts.core.clock->now_us();
    if (!has_worked || now_us - stats_us >= kStatsPeriodUs) PublishStats(*core);
    CompleteFinished();
    if (has_worked) continue;
    std::optional<int64_t> sleep_us;
    if (const std::optional<int64_t> wake_us = core->next_wake_us()) {
      sleep_us = std::clamp<int64_t>(*wake_us - now_us, 0, kMaxSleepUs);
    }
    home->mailbox.Wait(sleep_us);
  }
  home->mailbox.RunAll(*core);  // nobody waits for an answer that does not come
  core.reset();
  CompleteFinished();
}

// A reader that has seen the end finds it in the statistics.
void Engine::Impl::CompleteFinished() {
  if (home->finished.empty()) return;
  if (core) PublishStats(*core);
  for (const auto& reply : home->finished) {
    reply->Complete();
    live.erase(reply.get());
  }
  const std::lock_guard lock(mutex);
  num_live -= home->finished.size();
  home->finished.clear();
  ended.notify_all();
}

void Engine::Impl::PublishStats(const Core& source) {
  const EngineStats now = source.stats();
  stats_us = parts.core.clock->now_us();
  const std::lock_guard lock(mutex);
  stats = now;
}

Result<std::vector<TokenId>> Engine::Impl::PromptOf(const Request& request) const {
  if (request.text.empty() == request.tokens.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "text and tokens: {} given: send the prompt as one of them",
                  request.text.empty() ? "none is" : "both are");
  }
  if (!request.text.empty()) {
    if (parts.core.tokenizer == nullptr) {
      return Errorf(ErrorCode::kUnsupported, "text: this engine has no tokenizer: send tokens");
    }
    if (request.text.size() >= kMaxTextBytes) {
      return Errorf(ErrorCode::kInvalidArgument, "text: {} bytes are too many: shorten it",
                    request.text.size());
    }
    std::vector<TokenId> tokens = parts.core.tokenizer->Encode(request.text, {.add_special = true});
    if (!tokens.empty()) return tokens;
    return Errorf(ErrorCode::kInvalidArgument, "text: has no tokens: send more of it");
  }
  return request.tokens;
}

Status Engine::Impl::Prepare(Request& request) const {
  if (parts.check_sampling) KVERN_RETURN_IF_ERROR(parts.check_sampling(request.sampling));
  KVERN_ASSIGN_OR_RETURN(request.tokens, PromptOf(request));
  request.text = {};
  if (!request.seed) request.seed = DrawSeed();
  request.sampling.seed = *request.seed;
  return core->Check(request);
}

// Does not wait for the step under way, unless the answer may be that too many wait.
Result<std::shared_ptr<Reply::Impl>> Engine::Impl::Submit(Request request) {
  const int64_t arrival_us = parts.core.clock->now_us();
  const Status status = Prepare(request);
  if (!status.ok()) return CountRefusal(status.error());
  const auto reply = std::make_shared<Reply::Impl>(home, request, ++last_id);
  const auto shared_request = std::make_shared<Request>(std::move(request));
  const auto verdict = std::make_shared<Status>();
  const Mailbox::Task submit = [=, this](Core& target) {
    *verdict = SubmitNow(target, std::move(*shared_request), arrival_us, reply);
    if (verdict->ok()) return;
    reply->Refuse(verdict->error());
    PublishStats(target);
  };
  bool may_be_refused = false;
  {
    const std::lock_guard lock(mutex);
    if (is_draining) {
      ++num_refused;
      return Errorf(ErrorCode::kOverloaded, "the engine is ending: it accepts no more requests");
    }
    may_be_refused = num_live >= max_waiting;
    if (!may_be_refused || !home->mailbox.IsOwner()) ++num_live;
  }
  if (!may_be_refused) {
    home->mailbox.Post(submit);
    return reply;
  }
  if (home->mailbox.IsOwner()) {
    return CountRefusal(Errorf(ErrorCode::kOverloaded,
                               "{} requests are live already: try again when some have ended",
                               max_waiting));
  }
  home->mailbox.Call(submit);
  if (!verdict->ok()) return verdict->error();
  return reply;
}

Error Engine::Impl::CountRefusal(Error error) {
  if (error.code == ErrorCode::kOutOfMemory || error.code == ErrorCode::kOverloaded) {
    const std::lock_guard lock(mutex);
    ++num_refused;
  }
  return error;
}

Status Engine::Impl::SubmitNow(Core& target, Request request, int64_t arrival_us,
                               const std::shared_ptr<ReplyState>& reply) {
  Status status;
  try {
    live.emplace(reply.get(), reply);
    KVERN_RETURN_IF_ERROR(OpenNamespace(target, request));
    const auto id = target.Submit(std::move(request), reply.get(), arrival_us);
    if (!id.ok()) return id.error();
    reply->SetCoreId(*id);
    return {};
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

Result<kv::NamespaceId> Engine::Impl::OpenNamespace(Core& target, const Request& request) {
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns, target.NamespaceOf(request));
  const std::lock_guard lock(mutex);
  namespaces.emplace(engine::SharingGroupOf(request), ns);
  return ns;
}

std::optional<kv::NamespaceId> Engine::Impl::FindKnownNamespace(const Request& request) {
  const std::lock_guard lock(mutex);
  const auto known = namespaces.find(engine::SharingGroupOf(request));
  return known != namespaces.end() ? std::optional(known->second) : std::nullopt;
}

Result<kv::NamespaceId> Engine::Impl::FindNamespace(const Request& request) {
  if (const auto known = FindKnownNamespace(request)) return *known;
  if (home->mailbox.IsOwner()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "tenant: a new one cannot be explained from on_chunk: use another thread");
  }
  std::optional<Result<kv::NamespaceId>> ns;
  home->mailbox.Call([&](Core& target) { ns = OpenNamespace(target, request); });
  return *ns;
}

std::vector<Report> Engine::Impl::ReportLive(const Core& source) const {
  std::vector<Report> reports;
  for (const auto& [reply, owned] : live) {
    if (!reply->core_id()) continue;
    std::optional<Report> report = source.report(*reply->core_id());
    if (!report) continue;
    report->id = reply->id();
    reports.push_back(*std::move(report));
  }
  return reports;
}

void Engine::Impl::Drain() {
  CHECK(!home->mailbox.IsOwner());  // on_chunk would wait for itself
  std::unique_lock lock(mutex);
  is_draining = true;
  ended.wait(lock, [&] { return num_live == 0; });
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<Reply> Engine::Submit(Request request) {
  try {
    KVERN_ASSIGN_OR_RETURN(auto reply, impl_->Submit(std::move(request)));
    return Reply(std::move(reply));
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

void Engine::Drain() { impl_->Drain(); }

EngineStats Engine::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(impl_->mutex);
    stats = impl_->stats;
    stats.refused += impl_->num_refused;
  }
  stats.kv = impl_->parts.core.cache->stats();
  return stats;
}

Result<kv::Explanation> Engine::Explain(const Request& request) const {
  KVERN_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, impl_->PromptOf(request));
  if (!request.cache.use) {
    kv::Explanation explanation;
    explanation.split.miss[size_t(kv::MissReason::kPolicyOff)] = tokens.size();
    explanation.misses.push_back(
        {.reason = kv::MissReason::kPolicyOff, .position = 0, .num_tokens = tokens.size()});
    return explanation;
  }
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns, impl_->FindNamespace(request));
  return impl_->parts.core.cache->Explain(ns, tokens);
}

std::vector<TokenId> Engine::Encode(std::string_view text, bool add_special) const {
  const text::Tokenizer* const tokenizer = impl_->parts.core.tokenizer;
  if (tokenizer == nullptr) return {};
  return tokenizer->Encode(text, {.add_special = add_special});
}

Result<std::vector<TokenId>> Engine::EncodeChat(std::span<const ChatMessage> messages) const {
  if (!impl_->chat_template.ok()) return impl_->chat_template.error();
  return engine::EncodeMessages(*impl_->parts.core.tokenizer, *impl_->chat_template, messages);
}

std::string Engine::Decode(std::span<const TokenId> tokens) const {
  const text::Tokenizer* const tokenizer = impl_->parts.core.tokenizer;
  if (tokenizer == nullptr) return {};
  std::vector<TokenId> known(tokens.begin(), tokens.end());
  std::erase_if(known, [&](TokenId id) { return static_cast<size_t>(id) >= tokenizer->size(); });
  return tokenizer->Decode(known, /*render_special=*/false);
}

size_t Engine::context() const { return impl_->home->context; }
size_t Engine::kv_bytes_per_token() const { return impl_->parts.kv_bytes_per_token; }
std::string Engine::fingerprint() const { return impl_->home->model.fingerprint; }
std::string Engine::model_name() const { return impl_->home->model.name; }

// ---- Making one

Result<std::unique_ptr<Engine>> EngineAccess::Make(EngineParts parts,
                                                   const SchedulerOptions& scheduler,
                                                   const SpeculationOptions& speculation) {
  KVERN_ASSIGN_OR_RETURN(
      engine::ReceiptModel model,
      engine::MakeReceiptModel(parts.core.ns, parts.core.executor->info().groups));
  model.name = parts.model_name;
  model.k_dtype = parts.k_dtype;
  model.v_dtype = parts.v_dtype;
  KVERN_ASSIGN_OR_RETURN(std::unique_ptr<Core> core,
                         Core::Make(parts.core, scheduler, speculation));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Engine::Impl>(
      std::move(parts), std::move(core), std::move(model), scheduler.max_waiting)));
}

void EngineAccess::AskReports(Engine& engine, std::function<void(std::vector<Report>)> done) {
  Engine::Impl* const impl = engine.impl_.get();
  impl->home->mailbox.Post(
      [impl, done = std::move(done)](Core& core) { done(impl->ReportLive(core)); });
}

void EngineAccess::AskDropCached(Engine& engine, const Request* owner,
                                 std::function<void(size_t num_blocks)> done) {
  Engine::Impl* const impl = engine.impl_.get();
  std::optional<kv::NamespaceId> ns;
  if (owner != nullptr) {
    ns = impl->FindKnownNamespace(*owner);
    if (!ns) return done(0);
  }
  impl->home->mailbox.Post(
      [impl, ns, done = std::move(done)](Core&) { done(impl->parts.core.cache->DropCached(ns)); });
}

void EngineAccess::EndSpan(Engine& engine, const Request& owner, std::vector<TokenId> tokens) {
  Engine::Impl* const impl = engine.impl_.get();
  const auto ns = impl->FindKnownNamespace(owner);
  if (!ns) return;
  impl->home->mailbox.Post([impl, ns = *ns, tokens = std::move(tokens)](Core&) {
    impl->parts.core.cache->KeepSpan(ns, tokens, /*ttl_us=*/0);
  });
}

Status EngineAccess::SetQuotas(Engine& engine, std::vector<kv::AccountQuota> by_tenant) {
  for (kv::AccountQuota& row : by_tenant) row.account = engine::AccountOfTenant(row.account);
  std::optional<Status> status;
  engine.impl_->home->mailbox.Call(
      [&](Core&) { status = engine.impl_->parts.core.cache->SetQuotas(by_tenant); });
  return status ? *status : Errorf(ErrorCode::kOverloaded, "the engine is ending");
}

kv::Quota EngineAccess::QuotaOf(const Engine& engine, const std::string& tenant) {
  return CacheOf(engine).quota(engine::AccountOfTenant(tenant));
}

const kv::KvCache& EngineAccess::CacheOf(const Engine& engine) {
  return *engine.impl_->parts.core.cache;
}

std::optional<kv::NamespaceId> EngineAccess::FindNamespace(const Engine& engine,
                                                           const Request& owner) {
  return engine.impl_->FindKnownNamespace(owner);
}

const engine::ReceiptModel& EngineAccess::ModelOf(const Engine& engine) {
  return engine.impl_->home->model;
}

const text::Tokenizer* EngineAccess::TokenizerOf(const Engine& engine) {
  return engine.impl_->parts.core.tokenizer;
}

const Result<text::ChatTemplate>& EngineAccess::ChatTemplateOf(const Engine& engine) {
  return engine.impl_->chat_template;
}

const std::string& EngineAccess::TemplateSourceOf(const Engine& engine) {
  return engine.impl_->parts.chat_template;
}

}  // namespace kvern
