#include "sim/request_trace.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/mapped_file.h"
#include "sim/length_trace.h"
#include "sim/line_reader.h"

namespace kvern::sim {
namespace {

using nlohmann::json;

constexpr uint32_t kMooncakeBlockTokens = 512;
constexpr uint32_t kMaxBlockTokens = 1 << 16;
constexpr uint64_t kMaxId = UINT32_MAX;  // a session's number goes above
constexpr double kMaxSeconds = 1e9;

RequestTrace FromLengths(const LengthTrace& lengths) {
  RequestTrace trace;
  trace.requests.reserve(lengths.size());
  for (const LengthRequest& length : lengths) {
    trace.requests.push_back({.arrival_us = length.arrival_ms * 1000,
                              .prompt_tokens = length.context_tokens,
                              .new_tokens = length.generated_tokens,
                              .session = static_cast<uint32_t>(trace.requests.size())});
  }
  return trace;
}

class RequestTraceParser {
 public:
  RequestTraceParser(std::string_view text, const std::string& name) : lines_(text, name) {}

  Result<RequestTrace> Parse() {
    while (const auto line = lines_.Next()) {
      const json document = json::parse(*line, nullptr, false);
      if (!document.is_object()) {
        return Wrong("is no JSON object: is it a trace, and unpacked?");
      }
      if (document.contains("requests")) {
        KVERN_RETURN_IF_ERROR(AddSession(document));
      } else {
        KVERN_RETURN_IF_ERROR(AddRequest(document));
      }
      if (trace_.requests.size() > kMaxTraceRequests) {
        return Wrong(fmt::format("more than {} requests: split the file", kMaxTraceRequests));
      }
    }
    if (trace_.requests.empty()) return Wrong("has no request: give a trace with at least one");
    return std::move(trace_);
  }

 private:
  // What requests of one session that come one after another have in common.
  struct Line {
    uint64_t begin_us = 0;
    std::vector<size_t> last = {};  // what the next one waits for
  };

  Status AddRequest(const json& document) {
    KVERN_RETURN_IF_ERROR(SetBlockTokens(kMooncakeBlockTokens));
    TraceRequest request{.session = num_sessions_++};
    KVERN_ASSIGN_OR_RETURN(const uint64_t ms, Count(document, "timestamp", uint64_t{1} << 43));
    if (trace_.requests.empty()) origin_ms_ = ms;
    if (ms < origin_ms_ || (ms - origin_ms_) * 1000 < last_us_) {
      return Wrong("\"timestamp\" is before that of the line above: sort the lines by time");
    }
    request.arrival_us = last_us_ = (ms - origin_ms_) * 1000;
    KVERN_RETURN_IF_ERROR(ReadLengths(document, "input_length", "output_length", request));
    const auto ids = document.find("hash_ids");
    if (ids == document.end() || !ids->is_array()) return Wrong("\"hash_ids\" is no array");
    for (const json& id : *ids) {
      const std::optional<uint64_t> value = AsCount(id, kMaxId);
      if (!value) return Wrong("\"hash_ids\" has something that is no id below 2^32");
      AddRun({*value, 1}, request.blocks);
    }
    KVERN_RETURN_IF_ERROR(CheckBlocks(request));
    trace_.requests.push_back(std::move(request));
    return {};
  }

  Status AddSession(const json& document) {
    KVERN_ASSIGN_OR_RETURN(const uint64_t block_tokens,
                           Count(document, "block_size", kMaxBlockTokens));
    if (block_tokens == 0) return Wrong("\"block_size\" is 0");
    KVERN_RETURN_IF_ERROR(SetBlockTokens(static_cast<uint32_t>(block_tokens)));
    KVERN_RETURN_IF_ERROR(AddEntries(document["requests"], Line{}, nullptr));
    ++num_sessions_;
    return {};
  }

  // `outer` is null for a session, and the line that a sub-agent belongs to.
  Status AddEntries(const json& entries, Line line, Line* outer) {
    if (!entries.is_array()) return Wrong("\"requests\" is no array");
    for (const json& entry : entries) {
      if (!entry.is_object()) return Wrong("\"requests\" has something that is no object");
      KVERN_ASSIGN_OR_RETURN(const uint64_t at_us, Seconds(entry, "t"));
      if (entry.contains("requests")) {
        if (outer != nullptr) return Wrong("a sub-agent has sub-agents: that is not known here");
        KVERN_RETURN_IF_ERROR(AddEntries(entry["requests"], {at_us, line.last}, &line));
        continue;
      }
      KVERN_RETURN_IF_ERROR(AddEntry(entry, line.begin_us + at_us, line));
    }
    if (outer != nullptr) outer->last.insert(outer->last.end(), line.last.begin(), line.last.end());
    return {};
  }

  Status AddEntry(const json& entry, uint64_t arrival_us, Line& line) {
    TraceRequest request{
        .arrival_us = arrival_us, .session = num_sessions_, .after = std::move(line.last)};
    KVERN_RETURN_IF_ERROR(ReadLengths(entry, "in", "out", request));
    if (entry.contains("think_time")) {
      KVERN_ASSIGN_OR_RETURN(request.think_us, Seconds(entry, "think_time"));
    }
    const auto runs = entry.find("h");
    if (runs == entry.end() || !runs->is_array()) return Wrong("\"h\" is no array");
    for (const json& run : *runs) {
      const bool is_pair = run.is_array() && run.size() == 2;
      const auto first = is_pair ? AsCount(run[0], kMaxId) : std::nullopt;
      const auto count = is_pair ? AsCount(run[1], kMaxTraceTokens) : std::nullopt;
      if (!first || !count) return Wrong("\"h\" has something that is no [id, count]");
      AddRun({uint64_t{num_sessions_} << 32 | *first, static_cast<uint32_t>(*count)},
             request.blocks);
    }
    KVERN_RETURN_IF_ERROR(CheckBlocks(request));
    std::ranges::sort(request.after);
    request.after.erase(std::unique(request.after.begin(), request.after.end()),
                        request.after.end());
    line.last = {trace_.requests.size()};
    trace_.requests.push_back(std::move(request));
    return {};
  }

  static void AddRun(BlockRun run, std::vector<BlockRun>& blocks) {
    if (run.count == 0) return;
    if (!blocks.empty() && blocks.back().first + blocks.back().count == run.first &&
        blocks.back().count <= kMaxTraceTokens - run.count) {
      blocks.back().count += run.count;
    } else {
      blocks.push_back(run);
    }
  }

  Status SetBlockTokens(uint32_t block_tokens) {
    if (trace_.block_tokens != 0 && trace_.block_tokens != block_tokens) {
      return Wrong(fmt::format("blocks of {} tokens after some of {}: a trace has one size",
                               block_tokens, trace_.block_tokens));
    }
    trace_.block_tokens = block_tokens;
    return {};
  }

  Status CheckBlocks(const TraceRequest& request) const {
    uint64_t num_blocks = 0;
    for (const BlockRun& run : request.blocks) num_blocks += run.count;
    const uint64_t needed =
        (uint64_t{request.prompt_tokens} + trace_.block_tokens - 1) / trace_.block_tokens;
    if (num_blocks <= needed) return {};
    return Wrong(fmt::format("{} blocks of {} tokens are more than its prompt of {} tokens",
                             num_blocks, trace_.block_tokens, request.prompt_tokens));
  }

  Status ReadLengths(const json& object, const char* prompt, const char* reply,
                     TraceRequest& request) const {
    KVERN_ASSIGN_OR_RETURN(const uint64_t prompt_tokens, Count(object, prompt, kMaxTraceTokens));
    KVERN_ASSIGN_OR_RETURN(const uint64_t new_tokens, Count(object, reply, kMaxTraceTokens));
    request.prompt_tokens = static_cast<uint32_t>(prompt_tokens);
    request.new_tokens = static_cast<uint32_t>(new_tokens);
    return {};
  }

  static std::optional<uint64_t> AsCount(const json& value, uint64_t limit) {
    if (!value.is_number_unsigned()) return std::nullopt;
    const uint64_t count = value.get<uint64_t>();
    if (count > limit) return std::nullopt;
    return count;
  }

  Result<uint64_t> Count(const json& object, const char* field, uint64_t limit) const {
    const auto value = object.find(field);
    const auto count = value == object.end() ? std::nullopt : AsCount(*value, limit);
    if (count) return *count;
    return Wrong(fmt::format("\"{}\" is no whole number from 0 to {}", field, limit));
  }

  Result<uint64_t> Seconds(const json& object, const char* field) const {
    const auto value = object.find(field);
    if (value != object.end() && value->is_number()) {
      const double seconds = value->get<double>();
      if (seconds >= 0 && seconds <= kMaxSeconds) {
        return static_cast<uint64_t>(std::llround(seconds * 1e6));
      }
    }
    return Wrong(fmt::format("\"{}\" is no number of seconds from 0 to {:g}", field, kMaxSeconds));
  }

  Error Wrong(const std::string& what) const { return lines_.Wrong(what); }

  LineReader lines_;
  RequestTrace trace_;
  uint32_t num_sessions_ = 0;
  uint64_t origin_ms_ = 0;
  uint64_t last_us_ = 0;
};

}  // namespace

Result<RequestTrace> ParseRequestTrace(std::string_view text, const std::string& name) {
  const size_t first = text.find_first_not_of("\r\n");
  if (first != text.npos && text[first] == '{') return RequestTraceParser(text, name).Parse();
  KVERN_ASSIGN_OR_RETURN(const LengthTrace lengths, ParseLengthTrace(text, name));
  return FromLengths(lengths);
}

Result<RequestTrace> ReadRequestTrace(const std::string& path) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseRequestTrace(text, path);
}

}  // namespace kvern::sim
