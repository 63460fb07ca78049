#include "base/memory_info.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/mapped_file.h"

namespace kvern {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// A machine made of files: 100 MiB, 60 MiB of them available.
class MemoryInfoTest : public testing::Test {
 protected:
  MemoryInfoTest() { Write("proc/meminfo", "MemTotal:  102400 kB\nMemAvailable:  61440 kB\n"); }
  ~MemoryInfoTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    ASSERT_TRUE(WriteTextFile(full, text).ok());
  }

  void ExpectMiB(uint64_t total, uint64_t available) const {
    const auto info = ReadMemoryInfo(root_);
    ASSERT_TRUE(info.ok()) << info.error().message;
    EXPECT_EQ(info->total_bytes, total * kMiB);
    EXPECT_EQ(info->available_bytes, available * kMiB);
  }

  const std::string root_ = testing::TempDir() + "memory" + std::to_string(getpid()) + "/";
};

TEST_F(MemoryInfoTest, IsTheMachinesWithoutControlGroups) { ExpectMiB(100, 60); }

TEST_F(MemoryInfoTest, NoLimitLimitsNothing) {
  Write("proc/self/cgroup", "0::/user\n");
  Write("sys/fs/cgroup/user/memory.max", "max\n");
  ExpectMiB(100, 60);
}

TEST_F(MemoryInfoTest, Version2CountsDroppableCacheAsFree) {
  Write("proc/self/cgroup", "0::/user\n");
  Write("sys/fs/cgroup/user/memory.max", "41943040\n");      // 40 MiB
  Write("sys/fs/cgroup/user/memory.current", "31457280\n");  // 30 MiB
  Write("sys/fs/cgroup/user/memory.stat", "anon 1\ninactive_file 5242880\n");
  ExpectMiB(40, 15);
}

TEST_F(MemoryInfoTest, TheTightestEnclosingGroupCounts) {
  Write("proc/self/cgroup", "0::/outer/inner/gone\n");
  Write("sys/fs/cgroup/outer/memory.max", "20971520\n");        // 20 MiB
  Write("sys/fs/cgroup/outer/inner/memory.max", "41943040\n");  // 40 MiB
  ExpectMiB(20, 20);
}

TEST_F(MemoryInfoTest, Version1) {
  Write("proc/self/cgroup", "3:cpu,memory:/box\n1:pids:/\n0::/\n");
  Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "10485760\n");
  Write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "20971520\n");
  ExpectMiB(10, 0);
}

TEST_F(MemoryInfoTest, BrokenMeminfoIsAnError) {
  Write("proc/meminfo", "MemTotal: many kB\n");
  EXPECT_EQ(ReadMemoryInfo(root_).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(ReadMemoryInfo("/no/such/").error().code, ErrorCode::kNotFound);
}

TEST(MemoryInfo, ThisMachineHasSome) {
  const auto info = ReadMemoryInfo();
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_GT(info->available_bytes, kMiB);
  EXPECT_LE(info->available_bytes, info->total_bytes);
}

}  // namespace
}  // namespace kvern
