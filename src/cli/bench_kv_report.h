// What `kvern bench kv` found, for people, programs and charts.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/bench_kv_cases.h"
#include "cli/bench_kv_quality.h"
#include "cli/bench_kv_types.h"
#include "cli/bench_table.h"
#include "compute/kv_layout.h"

namespace kvern::cli {

// Bytes, and what fits into a given memory: exact, in whole blocks.
struct KvSize {
  size_t token_bytes;
  size_t capacity_tokens;
};

KvSize SizeOf(const compute::KvLayout& layout, size_t memory_bytes);

// A table with a column for each type, whose rows print as they come, and a document of the same.
class KvReport {
 public:
  // `settings` begin the document.
  KvReport(std::vector<KvTypes> types, const nlohmann::ordered_json& settings,
           BenchTable::TextSink out);
  ~KvReport();

  void AddSizes(const std::vector<KvSize>& sizes, size_t memory_bytes);
  void AddTimings(const KvCase& kv_case, const std::vector<KvTiming>& timings);
  void AddQualities(const KvQualities& qualities);

  const nlohmann::ordered_json& document() const;
  // Decoding speed by depth.
  std::string DrawDecoding() const;

 private:
  template <typename Format>
  void AddRow(const std::string& title, const Format& cell_of);

  const std::vector<KvTypes> types_;
  BenchTable table_;
  std::unique_ptr<nlohmann::ordered_json> document_;
  std::vector<std::pair<uint32_t, std::vector<double>>> decoding_;  // speeds by type at a depth
};

}  // namespace kvern::cli
