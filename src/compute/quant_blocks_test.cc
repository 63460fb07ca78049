#include "compute/quant_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace kvern::compute {
namespace {

// tests/data/gguf/make_dequant_goldens.py says what is in the files.
TEST(QuantBlocks, DecodesBitForBitLikeTheReference) {
  for (const QuantTraits& traits : QuantTypes()) {
    SCOPED_TRACE(traits.name);
    const std::string path = "tests/data/gguf/dequant_" + std::string(traits.name) + ".bin";
    const auto file = MappedFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const size_t bytes_per_block = traits.block_bytes + traits.block_elements * sizeof(float);
    const size_t num_blocks = file->bytes().size() / bytes_per_block;
    ASSERT_GE(num_blocks, 12u);
    ASSERT_EQ(file->bytes().size(), num_blocks * bytes_per_block);

    const auto blocks = file->bytes().first(num_blocks * traits.block_bytes);
    std::vector<float> expected(num_blocks * traits.block_elements);
    std::memcpy(expected.data(), file->bytes().data() + blocks.size(),
                expected.size() * sizeof(float));
    std::vector<float> actual(expected.size());
    Dequantize(traits.type, blocks, actual);
    for (size_t i = 0; i < expected.size(); ++i) {
      // Which NaN an invalid operation gives is the CPU's choice.
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(actual[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(actual[i]), std::bit_cast<uint32_t>(expected[i])) << i;
      }
    }
  }
}

TEST(QuantBlocks, ReadsUnalignedBytes) {
  const QuantTraits& traits = GetQuantTraits(QuantType::kQ4_K);
  std::vector<std::byte> bytes(traits.block_bytes + 1, std::byte{0x5A});
  std::vector<float> aligned(traits.block_elements);
  std::vector<float> unaligned(traits.block_elements);
  Dequantize(QuantType::kQ4_K, std::span(bytes).first(traits.block_bytes), aligned);
  Dequantize(QuantType::kQ4_K, std::span(bytes).subspan(1), unaligned);
  EXPECT_EQ(aligned, unaligned);
}

TEST(QuantBlocks, TheTableIsInIdOrderAndFindsEachRow) {
  uint32_t previous = 0;
  for (const QuantTraits& traits : QuantTypes()) {
    EXPECT_EQ(FindQuantTraits(traits.type), &traits);
    EXPECT_GE(static_cast<uint32_t>(traits.type), previous);
    previous = static_cast<uint32_t>(traits.type);
  }
  EXPECT_EQ(QuantTypes().size(), 11u);
  EXPECT_EQ(FindQuantTraits(QuantType{39}), nullptr);
}

TEST(QuantBlocksDeathTest, PartialBlocksAbort) {
  std::vector<std::byte> bytes(19);
  std::vector<float> out(32);
  EXPECT_DEATH(Dequantize(QuantType::kQ4_0, bytes, out), "CHECK failed");
}

}  // namespace
}  // namespace kvern::compute
