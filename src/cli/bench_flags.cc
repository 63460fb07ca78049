#include "cli/bench_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <thread>

namespace kvern::cli {
namespace {

std::optional<uint32_t> ParseCount(std::string_view text, CountRange range) {
  uint32_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || value < range.low || value > range.high) {
    return std::nullopt;
  }
  return value;
}

// The parts between commas, empty ones included.
std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t comma = 0; (comma = text.find(',')) != text.npos; text.remove_prefix(comma + 1)) {
    parts.push_back(text.substr(0, comma));
  }
  parts.push_back(text);
  return parts;
}

}  // namespace

void AddCountsFlag(CLI::App& app, const std::string& names, CountList& counts,
                   const std::string& help) {
  app.add_option(names, counts, help)->allow_extra_args(false)->capture_default_str();
}

void AddFormatFlag(CLI::App& app, std::string& format) {
  app.add_option("-o,--output", format, "Format: md, json, jsonl or csv")->capture_default_str();
}

Result<std::vector<uint32_t>> ParseCounts(const char* flag, const CountList& counts,
                                          CountRange range) {
  std::vector<uint32_t> values;
  for (const std::string& list : counts) {
    for (const std::string_view part : Split(list)) {
      const auto value = ParseCount(part, range);
      if (!value) {
        return Errorf(ErrorCode::kInvalidArgument,
                      "{}: '{}' is no number in {} … {}: give one, or several as A,B,C", flag, part,
                      range.low, range.high);
      }
      values.push_back(*value);
    }
  }
  return values;
}

Result<std::pair<uint32_t, uint32_t>> ParseCountPair(const char* flag, const std::string& pair,
                                                     CountRange range) {
  const auto parts = Split(pair);
  if (parts.size() == 2) {
    const auto first = ParseCount(parts[0], range), second = ParseCount(parts[1], range);
    if (first && second) return std::pair(*first, *second);
  }
  return Errorf(ErrorCode::kInvalidArgument,
                "{}: '{}' is no pair of numbers in {} … {}: give one such as 512,128", flag, pair,
                range.low, range.high);
}

uint32_t DefaultThreads() { return std::max(1u, std::thread::hardware_concurrency()); }

}  // namespace kvern::cli
