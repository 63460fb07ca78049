#include "server/request_trace.h"

#include <exception>
#include <utility>

namespace kvern::server {
namespace {

constexpr size_t kMaxPathBytes = 200;

double Milliseconds(int64_t us) { return static_cast<double>(us) / 1e3; }
int64_t Signed(size_t count) { return static_cast<int64_t>(count); }

}  // namespace

RequestTrace::RequestTrace(ServerLog& log, const Clock& clock, std::string method, std::string path,
                           std::string id)
    : log_(log),
      clock_(clock),
      method_(std::move(method)),
      path_(path.substr(0, kMaxPathBytes)),
      id_(std::move(id)),
      begin_us_(clock.now_us()) {}

RequestTrace::~RequestTrace() {
  if (is_quiet_ && status_ < 400) return;
  try {
    std::vector<LogField> fields = {{"method", method_},
                                    {"path", path_},
                                    {"status", int64_t{status_}},
                                    {"ms", Milliseconds(clock_.now_us() - begin_us_)},
                                    {"id", id_}};
    if (!tenant_.empty()) fields.push_back({"tenant", tenant_});
    std::ranges::move(answer_, std::back_inserter(fields));
    log_.Write("request", fields);
  } catch (const std::exception&) {
    // There is no memory for a line.
  }
}

void RequestTrace::SetAnswer(const Report& report, std::optional<FinishReason> finish) {
  answer_ = {{"prompt", Signed(report.prompt_tokens)},
             {"found", Signed(report.prompt.hit())},
             {"new", Signed(report.completion_tokens)}};
  if (report.queue_us) answer_.push_back({"queue_ms", Milliseconds(*report.queue_us)});
  if (report.ttft_us) answer_.push_back({"ttft_ms", Milliseconds(*report.ttft_us)});
  if (report.tpot_us > 0) answer_.push_back({"tpot_ms", report.tpot_us / 1e3});
  if (report.preemptions > 0) answer_.push_back({"preemptions", Signed(report.preemptions)});
  if (finish) answer_.push_back({"finish", std::string(ToString(*finish))});
}

}  // namespace kvern::server
