#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

namespace kvern {
namespace {

Hash128 HashInPieces(std::string_view text, size_t piece) {
  Hasher128 hasher;
  const auto bytes = std::as_bytes(std::span(text));
  for (size_t i = 0; i < bytes.size(); i += piece) {
    hasher.Add(bytes.subspan(i, std::min(piece, bytes.size() - i)));
  }
  return hasher.Digest();
}

TEST(Hash128Test, IsXxh3) {
  // The published digest of nothing, seed 0.
  EXPECT_EQ(Hasher128().Digest().ToHex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Hash128Test, PiecesDoNotMatter) {
  const std::string text(1000, 'k');
  const Hash128 whole = HashInPieces(text, text.size());
  for (const size_t piece : {1, 7, 64, 256, 999}) EXPECT_EQ(HashInPieces(text, piece), whole);
  EXPECT_NE(HashInPieces(text + "k", 7), whole);
}

}  // namespace
}  // namespace kvern
