#include "engine/exec/one_answer/engine_run.h"

#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace kvern::engine::one_answer {
namespace {

constexpr size_t kNumThreads = 4;

struct Asked {
  const Submission* submission = nullptr;
  std::optional<Result<Reply>> reply = {};
  RequestAnswer answer = {};
};

void Read(Asked& asked) {
  if (!asked.reply->ok()) return;
  Reply& reply = asked.reply->value();
  std::vector<CompletionAnswer>& completions = asked.answer.completions;
  completions.resize(asked.submission->asked->request.n);
  uint64_t num_chunks = 0;
  while (const std::optional<Chunk> chunk = reply.Next()) {
    CompletionAnswer& completion = completions[chunk->completion];
    completion.tokens.insert(completion.tokens.end(), chunk->tokens.begin(), chunk->tokens.end());
    completion.text += chunk->text;
    completion.finish = chunk->finish;
    if (++num_chunks == asked.submission->cancel_at_step) reply.Cancel();
  }
  asked.answer.report = reply.report();
}

}  // namespace

Result<std::unique_ptr<Engine>> OpenEngine(Lab* lab, const CoreSetup& setup) {
  EngineOptions options;
  options.model.path = lab->model_path();
  options.model.context = kContext;
  options.model.kv_tokens = setup.num_blocks * kBlockTokens;
  options.model.num_threads = setup.model.num_threads;
  options.model.k_dtype = setup.model.k_dtype;
  options.model.v_dtype = setup.model.v_dtype;
  options.model.isa = setup.model.isa;
  options.model.eviction = setup.eviction;
  options.scheduler = setup.scheduler;
  options.speculation.adaptive = setup.adaptive;
  options.speculation.max_draft = setup.max_draft;
  if (setup.draft == Draft::kNgram) options.speculation.proposer = "ngram";
  if (setup.draft == Draft::kSelf || setup.draft == Draft::kRandom) {
    options.speculation.proposer = "draft";
    options.speculation.draft_model = lab->model_path();
  }
  if (setup.draft == Draft::kRandom) {
    KVERN_ASSIGN_OR_RETURN(options.speculation.draft_model, lab->RandomTwin());
  }
  return Engine::Open(options);
}

Result<std::vector<RequestAnswer>> AnswerByEngine(Engine& engine,
                                                  const std::vector<Submission>& submissions) {
  std::vector<Asked> all(submissions.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kNumThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < all.size(); i += kNumThreads) {
        all[i].submission = &submissions[i];
        all[i].reply.emplace(engine.Submit(submissions[i].asked->request));
      }
      for (size_t i = t; i < all.size(); i += kNumThreads) Read(all[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<RequestAnswer> answers;
  for (Asked& asked : all) {
    const std::string& name = asked.submission->asked->name;
    std::optional<Error> error = asked.answer.report.error;
    if (!asked.reply->ok()) error = asked.reply->error();
    if (error) return Errorf(error->code, "{}: {}", name, error->message);
    answers.push_back(std::move(asked.answer));
  }
  return answers;
}

}  // namespace kvern::engine::one_answer
