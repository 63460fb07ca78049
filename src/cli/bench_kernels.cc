#include "cli/bench_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/memory_info.h"

namespace kvern::cli {
namespace {

using Stopwatch = std::chrono::steady_clock;
using compute::PeakKernels;

// Shorter runs are repeated until they last as long: clocks and joins then hardly count.
constexpr double kShortestSample = 4e-3;  // seconds

// Read in parts, one after the other: short measurements, and none finds its part in a cache.
constexpr size_t kMemoryBytes = size_t{1} << 30;
constexpr size_t kMemoryParts = 16;
constexpr size_t kReadAhead[] = {0, 0, 512, 512, 4096, 4096};

double Seconds(const std::function<void()>& run) {
  const auto start = Stopwatch::now();
  run();
  return std::chrono::duration<double>(Stopwatch::now() - start).count();
}

// A quarter of what is free where that is less.
size_t MemoryBytes() {
  const auto info = ReadMemoryInfo();
  if (!info.ok()) return kMemoryBytes;
  const size_t part = info->available_bytes / 4 / kMemoryParts / 4096 * 4096;
  return std::clamp<size_t>(part * kMemoryParts, 64 << 20, kMemoryBytes);
}

// Operations per second of all threads together.
double PeakRate(ThreadTeam& team, double (*kernel)(size_t rounds)) {
  size_t rounds = 1000;
  double done = 0;
  const auto run = [&] {
    std::vector<double> operations(team.size());
    team.Run([&](size_t thread) { operations[thread] = kernel(rounds); });
    done = 0;
    for (const double count : operations) done += count;
  };
  double seconds = Seconds(run);
  while (seconds < kShortestSample) {
    rounds *= 4;
    seconds = Seconds(run);
  }
  return done / seconds;
}

// One case and what is known of it on one team.
struct Sampler {
  const KernelCase* kernel;
  size_t repeats = 1;
  double best = 0;  // seconds of one run

  double Sample(ThreadTeam& team) const {
    return Seconds([&] {
             for (size_t i = 0; i < repeats; ++i) kernel->run(team);
           }) /
           static_cast<double>(repeats);
  }
};

}  // namespace

Result<KernelBench> KernelBench::Create(const compute::Isa* isa,
                                        const std::vector<uint32_t>& threads, uint32_t rounds) {
  KernelBench bench;
  bench.isa_ = isa;
  bench.rounds_ = rounds;
  KVERN_ASSIGN_OR_RETURN(bench.memory_, AlignedBuffer::Create(MemoryBytes()));
  for (const uint32_t count : threads) {
    bench.teams_.push_back(std::make_unique<ThreadTeam>(count));
    bench.limits_.push_back({});
  }
  // Untouched pages are all the same page of zeros.
  ThreadTeam& team = bench.LargestTeam();
  team.Run([&](size_t thread) {
    const auto [begin, end] = team.Share(bench.memory_.bytes(), thread);
    std::memset(bench.memory_.data() + begin, 1, end - begin);
  });
  for (uint32_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < bench.teams_.size(); ++i) bench.MeasureLimits(i);
  }
  return bench;
}

ThreadTeam& KernelBench::LargestTeam() {
  const auto size = [](const auto& team) { return team->size(); };
  return **std::ranges::max_element(teams_, {}, size);
}

void KernelBench::MeasureLimits(size_t index) {
  ThreadTeam& team = *teams_[index];
  const PeakKernels& peak = *isa_->peak;
  const auto keep = [&](Limit limit, double rate) {
    double& known = limits_[index][static_cast<size_t>(limit)];
    known = std::max(known, rate);
  };
  keep(Limit::kDot, PeakRate(team, peak.dot));
  keep(Limit::kFma, PeakRate(team, peak.fma));

  const size_t part_bytes = memory_.bytes() / kMemoryParts;
  for (const size_t ahead : kReadAhead) {
    const std::byte* const part = memory_.data() + next_part_ * part_bytes;
    next_part_ = (next_part_ + 1) % kMemoryParts;
    const double seconds = Seconds([&] {
      team.Run([&](size_t thread) {
        const auto [begin, end] = team.Share(part_bytes / 64, thread);
        peak.read(part + begin * 64, (end - begin) * 64, ahead);
      });
    });
    keep(Limit::kRead, static_cast<double>(part_bytes) / seconds);
  }
}

Status KernelBench::Run(KernelGroup group) {
  KVERN_RETURN_IF_ERROR(group.load(LargestTeam()));
  std::vector<std::vector<Sampler>> samplers(teams_.size());
  for (size_t i = 0; i < teams_.size(); ++i) {
    for (const KernelCase& kernel : group.cases) {
      Sampler sampler = {.kernel = &kernel};
      sampler.best = sampler.Sample(*teams_[i]);
      sampler.repeats = 1 + static_cast<size_t>(kShortestSample / sampler.best);
      samplers[i].push_back(sampler);
    }
  }
  for (uint32_t round = 0; round < rounds_; ++round) {
    for (size_t i = 0; i < teams_.size(); ++i) {
      MeasureLimits(i);
      for (Sampler& sampler : samplers[i]) {
        sampler.best = std::min(sampler.best, sampler.Sample(*teams_[i]));
      }
    }
  }
  for (size_t c = 0; c < group.cases.size(); ++c) {
    const KernelCase& kernel = group.cases[c];
    for (size_t i = 0; i < teams_.size(); ++i) {
      const double seconds = samplers[i][c].best;
      results_.push_back({kernel.kernel, kernel.type, kernel.shape, kernel.limit, i, seconds,
                          kernel.work / seconds});
    }
  }
  return {};
}

std::string CaseName(const KernelCase& kernel) {
  std::string name = kernel.kernel;
  for (const std::string& part : {kernel.type, kernel.shape}) {
    if (!part.empty()) name += " " + part;
  }
  return name;
}

std::vector<KernelGroup> KernelGroups(const compute::Isa& isa) {
  std::vector<KernelGroup> groups;
  for (const auto make : {LinearGroups, AttentionGroups, RowGroups}) {
    for (KernelGroup& group : make(isa)) groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace kvern::cli
