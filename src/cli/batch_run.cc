#include "cli/batch_run.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.h"
#include "cli/batch_lines.h"

namespace kvern::cli {
namespace {

constexpr int64_t kPatienceUs = 100'000;  // between looks at `stop`

const std::vector<TokenId>& PromptOf(const BatchItem& item) {
  return std::get<server::ApiRequest>(item.content).request.tokens;
}

class Run {
 public:
  Run(BatchFiles files, const BatchOptions& options, const server::ModelInfo& model,
      Answerer& answerer)
      : options_(options),
        model_(model),
        answerer_(answerer),
        reader_(std::move(files.input)),
        output_(std::move(files.output)) {
    figures_.num_requests = files.num_requests;
    figures_.num_kept = output_.num_answered();
    figures_.num_dropped_bytes = output_.num_dropped_bytes();
  }

  Result<BatchFigures> ToTheEnd(const std::atomic<bool>& stop) {
    while (!stop && (!window_.empty() || !is_read_ || !asked_.empty())) {
      if (window_.empty() && !is_read_) KVERN_RETURN_IF_ERROR(ReadWindow(stop));
      while (!stop && !window_.empty() && asked_.size() < options_.max_in_flight) AskNext();
      KVERN_RETURN_IF_ERROR(Collect(asked_.empty() ? 0 : kPatienceUs));
    }
    figures_.was_stopped = !window_.empty() || !is_read_ || !asked_.empty();
    KVERN_RETURN_IF_ERROR(output_.Sync());
    return figures_;
  }

 private:
  Status ReadWindow(const std::atomic<bool>& stop) {
    size_t num_tokens = 0;
    size_t line = 0;
    std::string text;
    while (window_.size() < options_.window_lines && num_tokens < options_.window_tokens && !stop) {
      if (!reader_.Next(line, text)) {
        is_read_ = true;
        break;
      }
      if (output_.IsAnswered(line, FindCustomId(text))) continue;
      BatchItem item = ParseBatchLine(line, text, model_);
      if (std::holds_alternative<server::ApiRequest>(item.content)) {
        num_tokens += PromptOf(item).size();
        window_.push_back(std::move(item));
      } else {
        KVERN_RETURN_IF_ERROR(Refuse(item));
      }
      KVERN_RETURN_IF_ERROR(Collect(0));
    }
    KVERN_RETURN_IF_ERROR(reader_.status());
    std::stable_sort(window_.begin(), window_.end(), [](const BatchItem& a, const BatchItem& b) {
      return PromptOf(a) < PromptOf(b);
    });
    return {};
  }

  void AskNext() {
    BatchItem item = std::move(window_.front());
    window_.pop_front();
    Request request = std::exchange(std::get<server::ApiRequest>(item.content).request, {});
    request.max_queued_chunks = 0;
    const size_t key = item.line;
    CHECK(asked_.emplace(key, std::move(item)).second);
    answerer_.Submit(key, std::move(request));
  }

  // Writes what is there, and waits for the first of it.
  Status Collect(int64_t timeout_us) {
    while (auto finished = answerer_.Await(timeout_us)) {
      timeout_us = 0;
      const auto asked = asked_.extract(finished->key);
      CHECK(!asked.empty());
      KVERN_RETURN_IF_ERROR(Write(asked.mapped(), finished->answer));
    }
    if (options_.on_change) options_.on_change(figures_);
    return {};
  }

  Status Write(const BatchItem& item, const Result<Answer>& answer) {
    if (!answer.ok()) return WriteRefusal(item, server::ToApiError(answer.error()));
    if (const auto error = server::AnswerError(*answer)) return WriteRefusal(item, *error);
    const Report& report = answer->report;
    figures_.prompt_tokens += report.prompt_tokens;
    figures_.prefilled_tokens += report.prefilled_tokens;
    figures_.generated_tokens += report.completion_tokens;
    kv::PromptSplit& sum = figures_.prompts;
    sum.ram += report.prompt.ram;
    sum.tier += report.prompt.tier;
    sum.in_flight += report.prompt.in_flight;
    sum.partial += report.prompt.partial;
    ++figures_.num_done;
    return output_.Append(AnswerLine(item, *answer, model_, NextIds()));
  }

  Status WriteRefusal(const BatchItem& item, const server::ApiError& error) {
    ++figures_.num_done;
    ++figures_.num_failed;
    return output_.Append(RefusalLine(item, error, NextIds()));
  }

  Status Refuse(const BatchItem& item) {
    if (const auto* error = std::get_if<server::ApiError>(&item.content)) {
      return WriteRefusal(item, *error);
    }
    ++figures_.num_done;
    ++figures_.num_failed;
    return output_.Append(MalformedLine(item, std::get<LineError>(item.content), NextIds()));
  }

  server::ReplyIds NextIds() {
    return {.id = fmt::format("{}_{}", options_.id_prefix, ++num_ids_),
            .created = options_.unix_time_s()};
  }

  const BatchOptions& options_;
  const server::ModelInfo& model_;
  Answerer& answerer_;
  BatchReader reader_;
  BatchOutput output_;
  bool is_read_ = false;                         // to the end
  std::deque<BatchItem> window_;                 // in the order of asking
  std::unordered_map<size_t, BatchItem> asked_;  // by line
  size_t num_ids_ = 0;
  BatchFigures figures_;
};

}  // namespace

Result<BatchFiles> OpenBatchFiles(const std::string& input, const std::string& output,
                                  const Clock& clock) {
  KVERN_ASSIGN_OR_RETURN(const BatchIndex index, IndexBatch(input));
  KVERN_ASSIGN_OR_RETURN(BatchReader reader, BatchReader::Open(input));
  KVERN_ASSIGN_OR_RETURN(BatchOutput replies, BatchOutput::Open(output, input, index, clock));
  return BatchFiles{std::move(reader), std::move(replies), index.num_requests()};
}

Result<BatchFigures> RunBatch(BatchFiles files, const BatchOptions& options,
                              const server::ModelInfo& model, Answerer& answerer,
                              const std::atomic<bool>& stop) {
  CHECK(options.max_in_flight > 0 && options.unix_time_s);
  return Run(std::move(files), options, model, answerer).ToTheEnd(stop);
}

}  // namespace kvern::cli
