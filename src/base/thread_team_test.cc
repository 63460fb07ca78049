#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <numeric>

namespace kvern {
namespace {

TEST(ThreadTeam, EveryThreadRunsEachJobOnceAndBarriersOrderThem) {
  for (const size_t num_threads : {1, 2, 4}) {
    ThreadTeam team(num_threads);
    std::vector<size_t> first(num_threads), sums(num_threads);
    for (size_t round = 0; round < 500; ++round) {
      team.Run([&](size_t thread) {
        first[thread] = thread + round;
        team.Barrier();
        sums[thread] = std::accumulate(first.begin(), first.end(), size_t{0});
        team.Barrier();
      });
      const size_t expected = num_threads * round + num_threads * (num_threads - 1) / 2;
      for (const size_t sum : sums) ASSERT_EQ(sum, expected);
    }
  }
}

TEST(ThreadTeam, SharesCoverEveryItemOnce) {
  ThreadTeam team(3);
  for (size_t count = 0; count < 20; ++count) {
    size_t next = 0;
    for (size_t thread = 0; thread < 3; ++thread) {
      const auto [begin, end] = team.Share(count, thread);
      EXPECT_EQ(begin, next);
      next = end;
    }
    EXPECT_EQ(next, count);
  }
}

TEST(ThreadTeam, PartsCoverEveryItemOnceWhoeverTakesThem) {
  for (const size_t num_threads : {1, 2, 4}) {
    ThreadTeam team(num_threads);
    for (const size_t count : {0, 1, 5, 100}) {
      std::vector<int> first(count), second(count);
      const auto count_in = [](std::vector<int>& times) {
        return [&times](size_t begin, size_t end) {
          for (size_t i = begin; i < end; ++i) ++times[i];
        };
      };
      for (int round = 0; round < 100; ++round) {
        team.Run([&](size_t /*thread*/) {
          team.TakeParts(count, count_in(first));
          team.Barrier();
          team.TakeParts(count, count_in(second));
        });
      }
      EXPECT_EQ(first, std::vector<int>(count, 100));
      EXPECT_EQ(second, std::vector<int>(count, 100));
    }
  }
}

TEST(ThreadTeam, JobsRunInTheDefinedFloatEnvironmentAndTheCallersIsRestored) {
  ThreadTeam team(2);
  const unsigned before = _mm_getcsr();
  const unsigned hostile = before | 0x8040 | 0x6000;  // FTZ, DAZ, round toward zero
  _mm_setcsr(hostile);
  unsigned seen[2] = {};
  team.Run([&](size_t thread) { seen[thread] = _mm_getcsr(); });
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(seen[0] & 0xE040u, 0u);
  EXPECT_EQ(seen[1] & 0xE040u, 0u);
  EXPECT_EQ(after, hostile);
}

}  // namespace
}  // namespace kvern
