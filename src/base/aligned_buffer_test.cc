#include "base/aligned_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace kvern {
namespace {

TEST(AlignedBuffer, IsAlignedZeroedAndMoves) {
  auto created = AlignedBuffer::Create(100);
  ASSERT_TRUE(created.ok());
  AlignedBuffer buffer = std::move(*created);
  EXPECT_EQ(buffer.bytes(), 128u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + 128,
                          [](std::byte byte) { return byte == std::byte{0}; }));
  buffer.as<float>()[0] = 1.5f;
  AlignedBuffer other;
  other = std::move(buffer);
  EXPECT_EQ(other.as<float>()[0], 1.5f);
}

TEST(AlignedBuffer, RefusalIsAnError) {
  const auto refused = AlignedBuffer::Create(size_t{1} << 62);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
}

TEST(AlignedBuffer, NothingIsNothing) { EXPECT_EQ(AlignedBuffer::Create(0)->bytes(), 0u); }

}  // namespace
}  // namespace kvern
