// kvern verify: computes the answers of receipts again, alone and without cache, and compares.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/default_model.h"
#include "cli/receipt_file.h"
#include "engine/receipt.h"
#include "engine/service.h"
#include "kvern/engine.h"

namespace kvern::cli {
namespace {

using engine::Receipt;

constexpr size_t kMaxContexts = 4;  // of the KV cache, for receipts of several completions

struct VerifyFlags {
  std::string file;
  std::string model;
  std::string isa = "auto";
  size_t threads = 0;
};

// Opens what the receipts need: most have one model and one pair of dtypes.
class Replayer {
 public:
  Replayer(std::string model_path, const VerifyFlags& flags, size_t context, size_t num_contexts)
      : path_(std::move(model_path)),
        flags_(flags),
        context_(context),
        num_contexts_(num_contexts) {}

  // Lines that say what differs; none if nothing does. Errors: there is nothing to compare.
  Result<std::vector<std::string>> Replay(const Receipt& written) {
    KVERN_RETURN_IF_ERROR(Open(written.model));
    auto differences = engine::FindModelDifferences(written.model, EngineAccess::ModelOf(*engine_));
    if (!differences.empty()) return differences;
    Request request = written.request;
    request.cache = {.use = false, .publish = false};
    request.max_queued_chunks = 0;
    KVERN_ASSIGN_OR_RETURN(Reply reply, engine_->Submit(std::move(request)));
    KVERN_ASSIGN_OR_RETURN(const Answer answer, reply.Wait());
    if (answer.report.receipt.empty()) {
      return Errorf(ErrorCode::kIo, "the replay ended with {}",
                    ToString(answer.completions[0].finish));
    }
    KVERN_ASSIGN_OR_RETURN(const Receipt replayed, engine::ParseReceipt(answer.report.receipt));
    return engine::FindAnswerDifferences(written.answer, replayed.answer);
  }

 private:
  Status Open(const engine::ReceiptModel& model) {
    if (engine_ && model.k_dtype == k_dtype_ && model.v_dtype == v_dtype_) return {};
    engine_.reset();
    EngineOptions options;
    options.model.path = path_;
    options.model.context = static_cast<uint32_t>(context_);
    options.model.kv_tokens = num_contexts_ * context_;
    options.model.num_threads = flags_.threads;
    options.model.isa = flags_.isa;
    options.model.k_dtype = k_dtype_ = model.k_dtype;
    options.model.v_dtype = v_dtype_ = model.v_dtype;
    KVERN_ASSIGN_OR_RETURN(engine_, Engine::Open(options));
    return {};
  }

  const std::string path_;
  const VerifyFlags& flags_;
  const size_t context_;
  const size_t num_contexts_;
  std::string k_dtype_, v_dtype_;
  std::unique_ptr<Engine> engine_;
};

std::string Describe(const Receipt& receipt) {
  size_t num_tokens = 0;
  for (const auto& completion : receipt.answer.completions) num_tokens += completion.num_tokens;
  return fmt::format("{} prompt tokens, {} tokens of {}, digest {}", receipt.request.tokens.size(),
                     num_tokens,
                     receipt.request.n == 1 ? std::string("the answer")
                                            : fmt::format("{} answers", receipt.request.n),
                     receipt.answer.digest);
}

Replayer MakeReplayer(const VerifyFlags& flags, const std::string& path,
                      const std::vector<FoundReceipt>& found) {
  size_t context = 1, num_contexts = 1;
  for (const FoundReceipt& row : found) {
    const Request& request = row.receipt.request;
    context = std::max(context, request.tokens.size() + *request.max_tokens);
    num_contexts = std::max(num_contexts, std::min(request.n, kMaxContexts));
  }
  return Replayer(path, flags, context, num_contexts);
}

Status Verify(const VerifyFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file));
  KVERN_ASSIGN_OR_RETURN(const auto found, FindReceipts(flags.file, text));
  KVERN_ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model));
  Replayer replayer = MakeReplayer(flags, path, found);
  size_t num_bad = 0;
  for (const FoundReceipt& row : found) {
    const std::string place =
        row.line == 0 ? flags.file : fmt::format("{}: line {}", flags.file, row.line);
    const auto differences = replayer.Replay(row.receipt);
    if (differences.ok() && differences->empty()) {
      fmt::print("{}verified: {}\n", row.line == 0 ? "" : fmt::format("line {}: ", row.line),
                 Describe(row.receipt));
      continue;
    }
    // What is wrong is the file, not the command line.
    const Error error = differences.ok() ? Errorf(ErrorCode::kCorrupt, "{}: not verified: {}",
                                                  place, fmt::join(*differences, "; "))
                                         : Errorf(ErrorCode::kCorrupt, "{}: cannot be verified: {}",
                                                  place, differences.error().message);
    if (found.size() == 1) return error;
    fmt::print("{}\n", error.message);
    ++num_bad;
  }
  if (num_bad == 0) return {};
  return Errorf(ErrorCode::kCorrupt, "{}: {} of {} receipts are not verified", flags.file, num_bad,
                found.size());
}

}  // namespace

Action DeclareVerify(CLI::App& app) {
  const auto flags = std::make_shared<VerifyFlags>();
  app.add_option("file", flags->file, "A receipt, a reply with a receipt, or lines of replies")
      ->required();
  app.add_option("-m,--model", flags->model, "Model file (default: the fetched model)");
  app.add_option("-t,--threads", flags->threads, "Threads (default: one per core)");
  app.add_option("--isa", flags->isa, "Instruction set of the kernels")->capture_default_str();
  return [flags] { return Verify(*flags); };
}

}  // namespace kvern::cli
