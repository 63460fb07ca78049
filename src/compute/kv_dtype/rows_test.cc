// Rows of K and V as they are stored: within their bound whatever they hold, the same bytes on
// every instruction set, and of their own token alone (rule N5).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/float16.h"
#include "compute/attention.h"
#include "compute/isa.h"
#include "compute/kv_layout.h"

namespace kvern::compute {
namespace {

using RowFloats = std::vector<float>;
using Plane = std::vector<std::byte>;

constexpr uint32_t kHeadDims[] = {1, 7, 16, 20, 64, 80, 96, 112, 128, 160};
constexpr float kLargest = 65504.0f;  // what rows are limited to
constexpr uint64_t kSeeds = 6;

struct KindOfRow {
  const char* name;
  RowFloats (*make)(uint32_t head_dim, std::mt19937_64& random);
};

float SignOf(std::mt19937_64& random) { return random() % 2 == 0 ? 1.0f : -1.0f; }

RowFloats NormalRow(uint32_t head_dim, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  RowFloats row(head_dim);
  for (float& x : row) x = normal(random);
  return row;
}

// The largest one in every third row.
float AnySize(std::mt19937_64& random) {
  if (random() % 3 == 0) return kLargest;
  return std::ldexp(1.9f, static_cast<int>(random() % 20) - 8);
}

RowFloats EqualRow(uint32_t head_dim, float value) { return RowFloats(head_dim, value); }

constexpr KindOfRow kKindsOfRows[] = {
    {"zeros", [](uint32_t n, std::mt19937_64&) { return EqualRow(n, 0.0f); }},
    {"normal", NormalRow},
    {"one huge value",
     [](uint32_t n, std::mt19937_64& random) {
       RowFloats row = NormalRow(n, random);
       row[random() % n] = SignOf(random) * (random() % 2 == 0 ? kLargest : 3e38f);
       return row;
     }},
    {"a huge value among zeros",
     [](uint32_t n, std::mt19937_64& random) {
       RowFloats row(n);
       row[random() % n] = SignOf(random) * kLargest;
       return row;
     }},
    {"subnormals",
     [](uint32_t n, std::mt19937_64& random) {
       RowFloats row(n);
       for (float& x : row) x = SignOf(random) * static_cast<float>(random() % 1000) * 0x1p-149f;
       return row;
     }},
    // Their scale is one in f16, or too small for one.
    {"scales that are subnormal",
     [](uint32_t n, std::mt19937_64& random) {
       RowFloats row = NormalRow(n, random);
       const float size = std::ldexp(1.0f, -30 + static_cast<int>(random() % 18));
       for (float& x : row) x *= size;
       return row;
     }},
    {"all equal",
     [](uint32_t n, std::mt19937_64& random) {
       return EqualRow(n, SignOf(random) * AnySize(random));
     }},
    {"alternating",
     [](uint32_t n, std::mt19937_64& random) {
       RowFloats row(n);
       const float size = AnySize(random);
       for (uint32_t d = 0; d < n; ++d) row[d] = d % 2 == 0 ? size : -size;
       return row;
     }},
    {"of every size",
     [](uint32_t n, std::mt19937_64& random) {
       RowFloats row = NormalRow(n, random);
       for (float& x : row) x *= std::ldexp(1.0f, static_cast<int>(random() % 45) - 32);
       return row;
     }},
};

// Of an integer type, 0 of others.
int BitsOf(KvDtype dtype) { return dtype == KvDtype::kQ8r ? 8 : dtype == KvDtype::kQ4r ? 4 : 0; }

// K or V of a type: what is tested of both alike.
struct Side {
  const KvDtypeTraits* traits;
  bool is_key;

  std::string name() const { return std::string(traits->name) + (is_key ? " K" : " V"); }
  static uint32_t PaddedDim(uint32_t head_dim) { return (head_dim + 15) / 16 * 16; }
  size_t plane_bytes(uint32_t head_dim) const {
    return is_key ? traits->k_plane_bytes(head_dim) : traits->v_plane_bytes(PaddedDim(head_dim));
  }
  KvRow row(uint32_t head_dim, uint32_t slot) const {
    return is_key ? traits->k_row(head_dim, slot) : traits->v_row(PaddedDim(head_dim), slot);
  }
  bool Store(const Isa& isa, const RowFloats& x, uint32_t slot, Plane& plane) const {
    const KvDtypeKernels& kernels = isa.attention->Of(traits->dtype);
    const auto store = is_key ? kernels.store_k : kernels.store_v;
    return store(x.data(), static_cast<uint32_t>(x.size()), slot, plane.data());
  }
};

std::vector<Side> AllSides() {
  std::vector<Side> sides;
  for (const KvDtypeTraits& traits : KvDtypes()) {
    for (const bool is_key : {true, false}) sides.push_back({&traits, is_key});
  }
  return sides;
}

std::vector<const Isa*> SupportedIsas() {
  std::vector<const Isa*> isas;
  for (const Isa& isa : Isas()) {
    if (isa.supported()) isas.push_back(&isa);
  }
  return isas;
}

// The bytes of the row in `slot`, its scale's last.
Plane RowBytes(const Side& side, const Plane& plane, uint32_t head_dim, uint32_t slot) {
  const KvRow row = side.row(head_dim, slot);
  Plane bytes;
  const auto add = [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) bytes.push_back(plane.at(i));
  };
  for (uint32_t i = 0; i < row.count; ++i) add(row.first + i * row.stride, row.bytes);
  add(row.scale, row.scale_bytes);
  return bytes;
}

Plane RandomPlane(size_t bytes, std::mt19937_64& random) {
  Plane plane(bytes);
  for (std::byte& byte : plane) byte = static_cast<std::byte>(random());
  return plane;
}

// ---- What a stored row says ------------------------------------------------------------------

struct IntegerRow {
  std::vector<int> numbers;
  float scale;
};

// Reads a row of a plane as integer_plane.h describes it: a piece has, for each number of its byte,
// four dimensions of K or one of V.
IntegerRow ReadRow(const Side& side, const Plane& plane, uint32_t head_dim, uint32_t slot) {
  const int bits = BitsOf(side.traits->dtype);
  const uint32_t per_byte = static_cast<uint32_t>(8 / bits), mask = (1u << bits) - 1;
  const KvRow row = side.row(head_dim, slot);
  IntegerRow result = {.numbers = std::vector<int>(head_dim), .scale = 0};
  uint16_t half = 0;
  std::memcpy(&half, &plane[row.scale], sizeof half);
  result.scale = HalfToFloat(half);
  for (uint32_t piece = 0; piece < row.count; ++piece) {
    for (uint32_t n = 0; n < row.bytes * per_byte; ++n) {
      const uint32_t byte = n % row.bytes, part = n / row.bytes;
      const auto stored = static_cast<uint32_t>(plane[row.first + piece * row.stride + byte]);
      const uint32_t number = stored >> (part * static_cast<uint32_t>(bits)) & mask;
      const uint32_t dim = side.is_key ? (piece * per_byte + part) * 4 + byte
                                       : (piece / 16 * per_byte + part) * 16 + piece % 16;
      if (dim >= head_dim) continue;
      // V in bytes is signed, all else has a bias of half its range.
      result.numbers[dim] = bits == 8 && !side.is_key
                                ? static_cast<int8_t>(number)
                                : static_cast<int>(number) - (1 << (bits - 1));
    }
  }
  return result;
}

// The rotation of K, in double: blocks of the powers of two that make up the head size. It undoes
// itself.
std::vector<double> Rotated(std::vector<double> x) {
  size_t first = 0;
  for (size_t n = size_t{1} << 20; n > 0; n /= 2) {
    if ((x.size() & n) == 0) continue;
    for (size_t stride = n / 2; stride > 0; stride /= 2) {
      for (size_t i = first; i < first + n; ++i) {
        if (((i - first) & stride) != 0) continue;
        const double a = x[i], b = x[i + stride];
        x[i] = a + b, x[i + stride] = a - b;
      }
    }
    for (size_t i = first; i < first + n; ++i) x[i] /= std::sqrt(static_cast<double>(n));
    first += n;
  }
  return x;
}

// As docs/numerics.md says: what a row is limited to before anything else, rotated where it is K.
std::vector<double> Limited(const Side& side, const RowFloats& row) {
  std::vector<double> x;
  for (const float v : row) {
    x.push_back(std::fabs(v) < 0x1p-30f ? 0.0 : std::clamp<double>(v, -kLargest, kLargest));
  }
  return side.is_key ? Rotated(std::move(x)) : x;
}

double LargestOf(const std::vector<double>& x) {
  double largest = 0;
  for (const double v : x) largest = std::max(largest, std::fabs(v));
  return largest;
}

void CheckBound(const Side& side, const RowFloats& row, const Plane& plane, uint32_t slot) {
  const std::vector<double> exact = Limited(side, row);
  const IntegerRow stored = ReadRow(side, plane, static_cast<uint32_t>(row.size()), slot);
  const int limit = (1 << (BitsOf(side.traits->dtype) - 1)) - 1;
  const double largest = LargestOf(exact), scale = stored.scale;
  ASSERT_TRUE(std::isfinite(scale));
  // What is beyond the largest scale is cut off. K in 4 bits alone gets there, by rows whose
  // numbers are all near the limit.
  const double cut = std::max(largest - limit * 65504.0, 0.0);
  ASSERT_TRUE(cut == 0 || (side.is_key && side.traits->dtype == KvDtype::kQ4r));
  const double bound = scale / 2 + std::max({largest * 0x1p-11, limit * 0x1p-25, cut});
  for (size_t d = 0; d < exact.size(); ++d) {
    ASSERT_LE(std::abs(stored.numbers[d]), limit) << "dimension " << d;
    // A little more for the rotation in float.
    ASSERT_LE(std::fabs(stored.numbers[d] * scale - exact[d]), bound + largest * 0x1p-20)
        << "dimension " << d << ": " << exact[d] << ", stored " << stored.numbers[d] << " · "
        << scale;
  }
  if (scale == 0) {
    ASSERT_TRUE(std::ranges::all_of(stored.numbers, [](int x) { return x == 0; }));
  }
}

// ---- Tests -----------------------------------------------------------------------------------

// Calls `check` for every kind of row, head size and seed, with that seed in its trace.
void ForManyRows(const std::function<void(const KindOfRow&, uint32_t, std::mt19937_64&)>& check) {
  for (const KindOfRow& kind : kKindsOfRows) {
    for (const uint32_t head_dim : kHeadDims) {
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        SCOPED_TRACE(testing::Message()
                     << kind.name << ", head size " << head_dim << ", seed " << seed);
        std::mt19937_64 random(seed);
        check(kind, head_dim, random);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(KvRows, IntegersAreWithinTheirBoundOfAnyRow) {
  const Isa& scalar = Isas()[0];
  ForManyRows([&](const KindOfRow& kind, uint32_t head_dim, std::mt19937_64& random) {
    for (const Side& side : AllSides()) {
      if (BitsOf(side.traits->dtype) == 0) continue;
      SCOPED_TRACE(side.name());
      const RowFloats row = kind.make(head_dim, random);
      Plane plane = RandomPlane(side.plane_bytes(head_dim), random);
      const auto slot = static_cast<uint32_t>(random() % kBlockTokens);
      ASSERT_TRUE(side.Store(scalar, row, slot, plane));
      ASSERT_NO_FATAL_FAILURE(CheckBound(side, row, plane, slot));
    }
  });
}

TEST(KvRows, EveryIsaStoresTheScalarBytesAndNoOthers) {
  const auto isas = SupportedIsas();
  ForManyRows([&](const KindOfRow& kind, uint32_t head_dim, std::mt19937_64& random) {
    for (const Side& side : AllSides()) {
      SCOPED_TRACE(side.name());
      const RowFloats row = kind.make(head_dim, random);
      const Plane before = RandomPlane(side.plane_bytes(head_dim), random);
      const auto slot = static_cast<uint32_t>(random() % kBlockTokens);
      Plane expected;
      for (const Isa* const isa : isas) {
        Plane plane = before;
        ASSERT_TRUE(side.Store(*isa, row, slot, plane)) << isa->name;
        if (expected.empty()) expected = plane;
        ASSERT_EQ(std::memcmp(plane.data(), expected.data(), plane.size()), 0) << isa->name;
      }
      for (uint32_t other = 0; other < kBlockTokens; ++other) {
        if (other == slot) continue;
        ASSERT_EQ(RowBytes(side, expected, head_dim, other),
                  RowBytes(side, before, head_dim, other))
            << "slot " << other;
      }
    }
  });
}

TEST(KvRows, WhatIsNotFiniteIsRefusedWhereverItIs) {
  const float wrong[] = {NAN, -NAN, INFINITY, -INFINITY};
  for (const Isa* const isa : SupportedIsas()) {
    for (const Side& side : AllSides()) {
      for (const uint32_t head_dim : kHeadDims) {
        Plane plane(side.plane_bytes(head_dim));
        for (uint32_t d = 0; d < head_dim; ++d) {
          RowFloats row(head_dim, d % 2 == 0 ? kLargest : 0.0f);
          row[d] = wrong[d % std::size(wrong)];
          ASSERT_FALSE(side.Store(*isa, row, d % kBlockTokens, plane))
              << isa->name << ' ' << side.name() << ' ' << d << " of " << head_dim;
        }
      }
    }
  }
}

// A block of rows of every kind, as `order` stores them.
Plane StoreBlock(const Isa& isa, const Side& side, std::span<const RowFloats> rows,
                 std::span<const uint32_t> order) {
  Plane plane(side.plane_bytes(static_cast<uint32_t>(rows[0].size())));
  for (const uint32_t slot : order) EXPECT_TRUE(side.Store(isa, rows[slot], slot, plane));
  return plane;
}

std::vector<RowFloats> BlockOfRows(uint32_t head_dim, std::mt19937_64& random) {
  std::vector<RowFloats> rows;
  for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
    rows.push_back(kKindsOfRows[random() % std::size(kKindsOfRows)].make(head_dim, random));
  }
  return rows;
}

TEST(KvRows, RowsDependOnTheirOwnTokenOnly) {
  for (const Isa* const isa : SupportedIsas()) {
    for (const Side& side : AllSides()) {
      ASSERT_TRUE(side.traits->row_independent);
      for (const uint32_t head_dim : kHeadDims) {
        for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
          SCOPED_TRACE(testing::Message() << isa->name << ' ' << side.name() << ", head size "
                                          << head_dim << ", seed " << seed);
          std::mt19937_64 random(seed);
          const auto rows = BlockOfRows(head_dim, random);
          std::vector<uint32_t> order(kBlockTokens);
          std::iota(order.begin(), order.end(), 0u);
          const Plane plane = StoreBlock(*isa, side, rows, order);

          const auto kept = static_cast<uint32_t>(1 + random() % (kBlockTokens - 1));
          auto flipped = rows;
          for (uint32_t slot = kept; slot < kBlockTokens; ++slot) {
            flipped[slot] = NormalRow(head_dim, random);
          }
          const Plane other = StoreBlock(*isa, side, flipped, order);
          for (uint32_t slot = 0; slot < kept; ++slot) {
            ASSERT_EQ(RowBytes(side, other, head_dim, slot), RowBytes(side, plane, head_dim, slot))
                << "slot " << slot << " of " << kept;
          }
          ASSERT_NE(RowBytes(side, other, head_dim, kept), RowBytes(side, plane, head_dim, kept));

          std::shuffle(order.begin(), order.end(), random);
          const Plane shuffled = StoreBlock(*isa, side, rows, order);
          ASSERT_EQ(std::memcmp(shuffled.data(), plane.data(), plane.size()), 0);
        }
      }
    }
  }
}

// The pieces of all rows are all bytes of a plane that rows may change, each of one row only.
TEST(KvRows, RowsShareNoByte) {
  for (const Side& side : AllSides()) {
    for (const uint32_t head_dim : kHeadDims) {
      std::vector<int> owners(side.plane_bytes(head_dim));
      for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
        const KvRow row = side.row(head_dim, slot);
        for (uint32_t i = 0; i < row.count; ++i) {
          for (uint32_t b = 0; b < row.bytes; ++b) ++owners.at(row.first + i * row.stride + b);
        }
        for (uint32_t b = 0; b < row.scale_bytes; ++b) ++owners.at(row.scale + b);
      }
      ASSERT_LE(*std::ranges::max_element(owners), 1) << side.name() << ' ' << head_dim;
    }
  }
}

}  // namespace
}  // namespace kvern::compute
