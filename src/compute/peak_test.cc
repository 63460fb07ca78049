#include "compute/peak.h"

#include <gtest/gtest.h>

#include <memory>

#include "compute/isa.h"

namespace kvern::compute {
namespace {

TEST(PeakKernels, CountTheirOperationsAndReadWithinBounds) {
  for (const Isa& isa : Isas()) {
    if (!isa.supported() || isa.peak == nullptr) continue;
    SCOPED_TRACE(isa.name);
    EXPECT_GE(isa.peak->dot(1), 2 * 64);
    EXPECT_GE(isa.peak->fma(1), 2 * 16);
    EXPECT_EQ(isa.peak->dot(10), 10 * isa.peak->dot(1));
    EXPECT_EQ(isa.peak->fma(10), 10 * isa.peak->fma(1));
    for (const size_t bytes : {64, 128, 192, 1024}) {
      const auto data = std::make_unique<std::byte[]>(bytes);  // its end is watched by sanitizers
      isa.peak->read(data.get(), bytes, 0);
      isa.peak->read(data.get(), bytes, 4096);
    }
  }
}

}  // namespace
}  // namespace kvern::compute
