#include "kv/snapshot.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kvern::kv {
namespace {

TEST(Snapshot, ReadersAlwaysSeeWholeValuesInOrder) {
  using Value = std::array<uint64_t, 64>;
  Snapshot<Value> snapshot;  // long, so that readers often meet a write under way
  std::atomic<bool> is_done{false};
  std::vector<std::thread> readers;
  std::atomic<size_t> num_torn{0};
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      while (!is_done.load()) {
        const Value value = snapshot.Read();
        for (const uint64_t word : value) num_torn += word != value[0];
        num_torn += value[0] < last;
        last = value[0];
        std::this_thread::yield();
      }
    });
  }
  for (uint64_t i = 1; i <= 20000; ++i) {
    Value value;
    value.fill(i);
    snapshot.Write(value);
  }
  is_done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(num_torn.load(), 0u);
  EXPECT_EQ(snapshot.Read()[63], 20000u);
}

}  // namespace
}  // namespace kvern::kv
