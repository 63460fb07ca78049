#include "cli/bench_kv_cases.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvern::cli {
namespace {

// Shorter runs are repeated until they last as long together. Their median leaves out those that
// something else interrupted.
constexpr double kShortestRun = 4e-3;  // seconds

double InUnitOf(const KvCase& kv_case, double seconds) {
  switch (kv_case.unit) {
    case KvUnit::kTokensPerSecond:
      return kv_case.work / seconds;
    case KvUnit::kMilliseconds:
      return 1e3 * seconds / kv_case.work;
    case KvUnit::kNanoseconds:
      break;
  }
  return 1e9 * seconds / kv_case.work;
}

Result<double> MedianOfRuns(const KvCase& kv_case, size_t type, size_t repeats) {
  std::vector<double> runs;
  for (size_t i = 0; i < repeats; ++i) {
    KVERN_ASSIGN_OR_RETURN(const double seconds, kv_case.run(type));
    runs.push_back(seconds);
  }
  return MedianOf(std::move(runs));
}

}  // namespace

double MedianOf(std::vector<double> values) {
  CHECK(!values.empty());
  std::ranges::sort(values);
  return std::midpoint(values[(values.size() - 1) / 2], values[values.size() / 2]);
}

Result<std::vector<KvTiming>> TimeCase(const KvCase& kv_case, size_t num_types, uint32_t rounds) {
  std::vector<KvTiming> timings(num_types);
  std::vector<size_t> repeats(num_types);
  for (size_t type = 0; type < num_types; ++type) {
    KVERN_ASSIGN_OR_RETURN(const double first, kv_case.run(type));
    repeats[type] = 1 + static_cast<size_t>(kShortestRun / std::max(first, 1e-9));
  }
  for (uint32_t round = 0; round < rounds; ++round) {
    for (size_t type = 0; type < num_types; ++type) {
      KVERN_ASSIGN_OR_RETURN(const double seconds, MedianOfRuns(kv_case, type, repeats[type]));
      timings[type].seconds.push_back(seconds);
    }
  }
  for (KvTiming& timing : timings) {
    std::vector<double> speeds;
    for (uint32_t round = 0; round < rounds; ++round) {
      speeds.push_back(timings[0].seconds[round] / timing.seconds[round]);
    }
    timing.value = InUnitOf(kv_case, MedianOf(timing.seconds));
    timing.speed = MedianOf(std::move(speeds));
  }
  return timings;
}

}  // namespace kvern::cli
