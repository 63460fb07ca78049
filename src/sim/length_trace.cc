#include "sim/length_trace.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "sim/line_reader.h"

namespace kvern::sim {
namespace {

constexpr std::string_view kHeader = "arrival_ms,context_tokens,generated_tokens";
constexpr std::string_view kAzureHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr uint64_t kMaxArrivalMs = uint64_t{1} << 53;  // 285,000 years

// Digits only, all of the text, at most `limit`.
std::optional<uint64_t> ParseNumber(std::string_view text, uint64_t limit) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > limit) {
    return std::nullopt;
  }
  return value;
}

// Days since 1970-01-01 in the Gregorian calendar.
int64_t DaysSinceEpoch(int64_t year, int64_t month, int64_t day) {
  // Years that begin in March have the leap day last.
  const int64_t y = month > 2 ? year : year - 1;
  const int64_t days_before_month = (153 * ((month + 9) % 12) + 2) / 5;
  return 365 * y + y / 4 - y / 100 + y / 400 + days_before_month + day - 719469;
}

// "2023-11-16 18:15:46.6805900" in milliseconds since 1970.
std::optional<uint64_t> ParseTimestamp(std::string_view text) {
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd", kUtc = "+00:00";
  if (text.ends_with(kUtc)) text.remove_suffix(kUtc.size());
  if (text.size() < kShape.size()) return std::nullopt;
  for (size_t i = 0; i < kShape.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kShape[i] == 'd' ? !is_digit : text[i] != kShape[i]) return std::nullopt;
  }
  const auto field = [text](size_t begin, size_t length) {
    return static_cast<int64_t>(*ParseNumber(text.substr(begin, length), 9999));
  };
  const int64_t year = field(0, 4), month = field(5, 2), day = field(8, 2);
  const int64_t hour = field(11, 2), minute = field(14, 2), second = field(17, 2);
  if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31) return std::nullopt;
  if (hour > 23 || minute > 59 || second > 60) return std::nullopt;

  uint64_t ms = 0;
  if (text.size() > kShape.size()) {
    std::string_view fraction = text.substr(kShape.size());
    if (fraction.size() < 2 || fraction.size() > 10 || fraction.front() != '.') return std::nullopt;
    fraction.remove_prefix(1);
    if (!ParseNumber(fraction, UINT64_MAX)) return std::nullopt;
    ms = *ParseNumber((std::string(fraction) + "00").substr(0, 3), 999);
  }
  const int64_t seconds =
      ((DaysSinceEpoch(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
  return static_cast<uint64_t>(seconds) * 1000 + ms;
}

// What a file says in place of a row, short enough for a message and without control characters.
std::string Quote(std::string_view text) {
  constexpr size_t kMaxShown = 40;
  std::string shown(text.substr(0, kMaxShown));
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text.size() > kMaxShown ? shown + "..." : shown;
}

class LengthTraceParser {
 public:
  LengthTraceParser(std::string_view text, const std::string& name)
      : text_(text), name_(name), lines_(text, name) {}

  Result<LengthTrace> Parse() {
    if (text_.starts_with("\x1f\x8b")) {
      return Errorf(ErrorCode::kCorrupt, "{}: is compressed: unpack it with gunzip first", name_);
    }
    KVERN_RETURN_IF_ERROR(ParseHeader());
    LengthTrace trace;
    uint64_t origin_ms = 0;
    while (const auto line = lines_.Next()) {
      KVERN_ASSIGN_OR_RETURN(LengthRequest request, ParseRow(*line));
      if (trace.empty()) origin_ms = request.arrival_ms;
      if (request.arrival_ms < origin_ms ||
          (!trace.empty() && request.arrival_ms - origin_ms < trace.back().arrival_ms)) {
        return Wrong("arrives before the row above: sort the rows by time");
      }
      request.arrival_ms -= origin_ms;
      trace.push_back(request);
    }
    if (trace.empty()) return Wrong("no request follows: give a trace with at least one row");
    return trace;
  }

 private:
  Status ParseHeader() {
    const auto line = lines_.Next();
    if (line == kHeader) return {};
    if (line == kAzureHeader) {
      is_azure_ = true;
      return {};
    }
    return Wrong(fmt::format("the header is \"{}\", not \"{}\" or \"{}\": is it a length trace?",
                             Quote(line.value_or("")), kHeader, kAzureHeader));
  }

  Result<LengthRequest> ParseRow(std::string_view line) const {
    const size_t first = line.find(',');
    const size_t second = first == line.npos ? line.npos : line.find(',', first + 1);
    if (second == line.npos || line.find(',', second + 1) != line.npos) {
      return Wrong(fmt::format("\"{}\" is not three fields with commas between", Quote(line)));
    }
    const std::string_view time = line.substr(0, first);
    const auto arrival_ms = is_azure_ ? ParseTimestamp(time) : ParseNumber(time, kMaxArrivalMs);
    if (!arrival_ms) {
      return Wrong(fmt::format("\"{}\" is not {}", Quote(time),
                               is_azure_ ? "a time like 2023-11-16 18:15:46.6805900"
                                         : "a whole number of milliseconds"));
    }
    LengthRequest request{.arrival_ms = *arrival_ms};
    KVERN_ASSIGN_OR_RETURN(request.context_tokens,
                           ParseTokens(line.substr(first + 1, second - first - 1)));
    KVERN_ASSIGN_OR_RETURN(request.generated_tokens, ParseTokens(line.substr(second + 1)));
    return request;
  }

  Result<uint32_t> ParseTokens(std::string_view text) const {
    const auto value = ParseNumber(text, kMaxTraceTokens);
    if (value) return static_cast<uint32_t>(*value);
    return Wrong(
        fmt::format("\"{}\" is not a number of tokens from 0 to {}", Quote(text), kMaxTraceTokens));
  }

  Error Wrong(const std::string& what) const { return lines_.Wrong(what); }

  const std::string_view text_;
  const std::string& name_;
  LineReader lines_;
  bool is_azure_ = false;
};

// Every power of two in [2^low, 2^high) equally often, evenly within each.
uint32_t DrawLength(SplitMix64& random, uint32_t low, uint32_t high) {
  const uint32_t power = 1u << (low + random.Below(high - low));
  return power + static_cast<uint32_t>(random.Below(power));
}

}  // namespace

Result<LengthTrace> ParseLengthTrace(std::string_view text, const std::string& name) {
  return LengthTraceParser(text, name).Parse();
}

Result<LengthTrace> ReadLengthTrace(const std::string& path) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return ParseLengthTrace(text, path);
}

LengthTrace MakeSyntheticTrace(size_t num_requests, uint64_t seed) {
  constexpr uint64_t kMaxGapMs = 360;
  SplitMix64 random(seed);
  LengthTrace trace(num_requests);
  uint64_t now_ms = 0;
  for (LengthRequest& request : trace) {
    request.arrival_ms = now_ms;
    request.context_tokens = DrawLength(random, 5, 13);
    request.generated_tokens = DrawLength(random, 3, 10);
    now_ms += random.Below(kMaxGapMs + 1);
  }
  return trace;
}

uint32_t LongestRequest(const LengthTrace& trace) {
  uint32_t longest = 0;
  for (const LengthRequest& request : trace) longest = std::max(longest, request.num_tokens());
  return longest;
}

}  // namespace kvern::sim
