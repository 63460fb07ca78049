// BenchTable: how the benchmarks print their rows: as a Markdown table, JSON, JSON lines or CSV.
//
// A row has two forms: cells for people and a record for programs. Every format but JSON prints a
// row when it is added, so that a long run shows what it has. One thread.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvern::cli {

enum class BenchFormat { kMarkdown, kJson, kJsonLines, kCsv };

// The format that -o names. Errors: kInvalidArgument, with the names that exist.
Result<BenchFormat> ParseBenchFormat(const std::string& name);

struct BenchColumn {
  std::string title;
  size_t width;          // columns of text at least
  bool is_text = false;  // left-aligned
};

class BenchTable {
 public:
  using TextSink = std::function<void(std::string_view)>;

  BenchTable(BenchFormat format, std::vector<BenchColumn> columns, TextSink out);

  // One cell per column; `record` is an object, whose arrays CSV leaves out. All records of a table
  // have the same fields.
  void Add(std::span<const std::string> cells, const nlohmann::ordered_json& record);

  // The end of the document.
  void Finish();

 private:
  void AddMarkdown(std::span<const std::string> cells);
  void AddCsv(const nlohmann::ordered_json& record);

  const BenchFormat format_;
  const std::vector<BenchColumn> columns_;
  const TextSink out_;
  size_t num_rows_ = 0;
};

// A sink: standard output, flushed.
void PrintNow(std::string_view text);

struct MeanSd {
  double mean;
  double sd;  // of the sample; 0 for one value
};

// REQUIRES: at least one value.
MeanSd ComputeMeanSd(std::span<const double> values);

// "479.20 ± 1.30".
std::string FormatMeanSd(const MeanSd& value);

}  // namespace kvern::cli
