#include "kv/block_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "kv/test_support.h"

namespace kvern::kv {
namespace {

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total_pages = 0, resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

HostBlockStore MakeStore() {
  return HostBlockStore([](GroupId, std::byte*, const std::byte*, uint32_t) {});
}

TEST(HostBlockStore, RegionsAreAlignedZeroedAndCountedExactly) {
  HostBlockStore store = MakeStore();
  std::vector<Region> regions;
  size_t expected_bytes = 0;
  for (const size_t bytes :
       {size_t{1}, size_t{4096}, size_t{4097}, size_t{2} << 20, (size_t{5} << 20) + 64}) {
    auto region = store.Allocate(bytes);
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_GE(region->size(), bytes);
    EXPECT_LT(region->size(), bytes + 4096);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(region->data()) % kBlockAlignment, 0u);
    EXPECT_TRUE(IsZero(region->data(), region->size()));
    store.Copy(region->data() + region->size() - 1, region->data(), 1);
    expected_bytes += region->size();
    regions.push_back(*region);
    EXPECT_EQ(store.bytes_held(), expected_bytes);
  }
  for (const Region region : regions) {
    store.Free(region);
    expected_bytes -= region.size();
    EXPECT_EQ(store.bytes_held(), expected_bytes);
  }
}

TEST(HostBlockStore, ReservedMemoryIsNotResidentUntilWritten) {
  HostBlockStore store = MakeStore();
  const size_t before = ResidentBytes();
  auto region = store.Allocate(size_t{512} << 20);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_LT(ResidentBytes(), before + (size_t{32} << 20));
  store.Free(*region);
}

TEST(HostBlockStore, ARefusalOfTheSystemIsAnErrorWithTheNumbers) {
  HostBlockStore store = MakeStore();
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX / 4, size_t{1} << 60}) {
    const auto region = store.Allocate(bytes);
    ASSERT_FALSE(region.ok());
    EXPECT_EQ(region.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(region.error().message.find("use a smaller context"), std::string::npos);
  }
  EXPECT_EQ(store.bytes_held(), 0u);
}

}  // namespace
}  // namespace kvern::kv
