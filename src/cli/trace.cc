#include "cli/trace.h"

#include <fmt/core.h>

#include <memory>
#include <utility>

#include "cli/reply_stats.h"

namespace kvern::cli {
namespace {

std::string Line(const char* what, size_t tokens, size_t bytes, const std::string& where = "") {
  const std::string line = fmt::format("kv {:13}{:7} {:7} {:>11}", what, tokens,
                                       tokens == 1 ? "token" : "tokens", FormatBytes(bytes));
  return where.empty() ? line : line + "   " + where;
}

std::string Positions(const engine::StepTrace& step) {
  if (step.num_tokens == 1) return fmt::format("position {}", step.first_position);
  return fmt::format("positions {} … {}", step.first_position,
                     step.first_position + step.num_tokens - 1);
}

const char* Name(kv::CacheEvent::Kind kind) {
  switch (kind) {
    case kv::CacheEvent::Kind::kAllocate:
      return "allocate";
    case kv::CacheEvent::Kind::kGrowCopy:
      return "copy to grow";
    case kv::CacheEvent::Kind::kCopyOnWrite:
      return "copy on write";
    case kv::CacheEvent::Kind::kFree:
      return "free";
  }
  return "";
}

}  // namespace

void TraceTo(engine::GenerationOptions& options, LineSink sink) {
  const auto shared = std::make_shared<LineSink>(std::move(sink));
  options.cache.on_event = [shared](const kv::CacheEvent& event) {
    (*shared)(Line(Name(event.kind), event.tokens, event.bytes));
  };
  options.on_step = [shared](const engine::StepTrace& step) {
    const bool is_decode = step.kind == engine::StepTrace::Kind::kDecode;
    (*shared)(Line(is_decode ? "append" : "bulk write", step.num_tokens, step.bytes_written,
                   Positions(step)));
    if (step.num_rows_read > 0) (*shared)(Line("read", step.num_rows_read, step.bytes_read));
  };
}

}  // namespace kvern::cli
