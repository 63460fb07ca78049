#include "compute/packed_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "compute/test_weights.h"

namespace kvern::compute {
namespace {

TEST(PackedMatrix, UnpackedRowsEqualTheFilesDecoderBitForBit) {
  for (const WeightFormat& format : WeightFormats()) {
    const QuantTraits& traits = GetQuantTraits(format.type);
    SCOPED_TRACE(traits.name);
    constexpr uint32_t kRows = 37, kCols = 512;
    const auto source = RandomWeights(format.type, kRows, kCols, /*seed=*/7);
    auto created = PackedMatrix::Create(format.type, kRows, kCols);
    ASSERT_TRUE(created.ok());
    PackedMatrix& matrix = *created;
    EXPECT_EQ(matrix.num_tiles(), 3u);
    EXPECT_EQ(matrix.bytes(), matrix.num_tiles() * matrix.tile_bytes());
    matrix.PackTiles(source.data(), 0, 2);
    matrix.PackTiles(source.data(), 2, 3);
    std::vector<float> expected(size_t{kRows} * kCols), actual(kCols);
    Dequantize(format.type, source, expected);
    for (uint32_t row = 0; row < kRows; ++row) {
      matrix.UnpackRow(row, actual.data());
      ASSERT_EQ(std::memcmp(actual.data(), &expected[size_t{row} * kCols], kCols * 4), 0)
          << "row " << row;
    }
  }
}

TEST(PackedMatrix, TableIsCompleteAndIndexed) {
  for (const QuantTraits& traits : QuantTypes()) {
    EXPECT_NE(FindWeightFormat(traits.type), nullptr) << traits.name;
  }
  for (size_t i = 0; i < WeightFormats().size(); ++i) {
    EXPECT_EQ(FormatIndex(WeightFormats()[i]), i);
  }
}

TEST(PackedMatrix, BadShapesAreErrors) {
  const auto odd = PackedMatrix::Create(QuantType::kQ4_0, 16, 40);
  ASSERT_FALSE(odd.ok());
  EXPECT_EQ(odd.error().message, "Q4_0 weights need rows of a multiple of 32, not 40");
  EXPECT_FALSE(PackedMatrix::Create(QuantType{99}, 16, 32).ok());
}

}  // namespace
}  // namespace kvern::compute
