#include "cli/bench_table.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace kvern::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::pair<std::string_view, BenchFormat> kFormats[] = {
    {"md", BenchFormat::kMarkdown},
    {"json", BenchFormat::kJson},
    {"jsonl", BenchFormat::kJsonLines},
    {"csv", BenchFormat::kCsv},
};

std::string ToLine(const ordered_json& value) {
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string CsvCell(const std::string& text) {
  std::string cell = "\"";
  for (const char c : text) cell.append(c == '"' ? 2 : 1, c);
  return cell + "\"";
}

}  // namespace

Result<BenchFormat> ParseBenchFormat(const std::string& name) {
  for (const auto& [known, format] : kFormats) {
    if (known == name) return format;
  }
  return Errorf(ErrorCode::kInvalidArgument,
                "-o: unknown format '{}': use one of md, json, jsonl, csv", name);
}

BenchTable::BenchTable(BenchFormat format, std::vector<BenchColumn> columns, TextSink out)
    : format_(format), columns_(std::move(columns)), out_(std::move(out)) {}

void BenchTable::Add(std::span<const std::string> cells, const ordered_json& record) {
  switch (format_) {
    case BenchFormat::kMarkdown:
      AddMarkdown(cells);
      break;
    case BenchFormat::kJson:
      out_((num_rows_ == 0 ? "[\n  " : ",\n  ") + ToLine(record));
      break;
    case BenchFormat::kJsonLines:
      out_(ToLine(record) + "\n");
      break;
    case BenchFormat::kCsv:
      AddCsv(record);
      break;
  }
  ++num_rows_;
}

void BenchTable::Finish() {
  if (format_ == BenchFormat::kJson) out_(num_rows_ == 0 ? "[]\n" : "\n]\n");
}

void BenchTable::AddMarkdown(std::span<const std::string> cells) {
  CHECK(cells.size() == columns_.size());
  const auto print = [&](auto cell_of) {
    std::string line = "|";
    for (size_t i = 0; i < columns_.size(); ++i) {
      const BenchColumn& column = columns_[i];
      line += column.is_text ? fmt::format(" {:<{}} |", cell_of(i), column.width)
                             : fmt::format(" {:>{}} |", cell_of(i), column.width);
    }
    out_(line + "\n");
  };
  if (num_rows_ == 0) {
    print([&](size_t i) { return columns_[i].title; });
    print([&](size_t i) {
      return std::string(columns_[i].width - 1, '-') + (columns_[i].is_text ? "-" : ":");
    });
  }
  print([&](size_t i) { return cells[i]; });
}

void BenchTable::AddCsv(const ordered_json& record) {
  std::string header, row;
  for (const auto& [name, value] : record.items()) {
    if (value.is_array()) continue;
    header += (header.empty() ? "" : ",") + name;
    row += (row.empty() ? "" : ",") +
           CsvCell(value.is_string() ? value.get<std::string>() : ToLine(value));
  }
  if (num_rows_ == 0) out_(header + "\n");
  out_(row + "\n");
}

void PrintNow(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

MeanSd ComputeMeanSd(std::span<const double> values) {
  CHECK(!values.empty());
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {mean, values.size() > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

std::string FormatMeanSd(const MeanSd& value) {
  return fmt::format("{:.2f} ± {:.2f}", value.mean, value.sd);
}

}  // namespace kvern::cli
