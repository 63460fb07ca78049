#include "text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace kvern::text {
namespace {

std::u32string Decode(std::string_view text) {
  std::u32string code_points;
  for (size_t i = 0; i < text.size();) code_points.push_back(NextCodePoint(text, i));
  return code_points;
}

TEST(NextCodePoint, GoesThereAndBackForEveryCodePoint) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string text;
    AppendUtf8(c, text);
    size_t offset = 0;
    ASSERT_EQ(NextCodePoint(text, offset), c);
    ASSERT_EQ(offset, text.size());
  }
}

TEST(NextCodePoint, ReplacesBytesThatAreNoCharacter) {
  EXPECT_EQ(Decode("a\x80z"), U"a\uFFFDz");
  EXPECT_EQ(Decode("\xC3"), U"\uFFFD");
  EXPECT_EQ(Decode("\xE4\xBD"), U"\uFFFD\uFFFD");
  EXPECT_EQ(Decode("\xE4z\xBD"), U"\uFFFDz\uFFFD");
  EXPECT_EQ(Decode("\xFF\xF8"), U"\uFFFD\uFFFD");
  EXPECT_EQ(Decode("\xF4\x90\x80\x80"), U"\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST(NextCodePoint, TakesOverlongFormsAndSurrogatesForWhatTheyMean) {
  EXPECT_EQ(Decode("\xC1\x81"), U"A");
  EXPECT_EQ(Decode("\xE0\x80\xAF"), U"/");
  EXPECT_EQ(Decode("\xED\xA0\x80"), std::u32string(1, char32_t{0xD800}));
}

TEST(Utf8Stream, HoldsBackWhatIsNotComplete) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("a\xF0"), "a");
  EXPECT_EQ(stream.Push("\x9F\x98"), "");
  EXPECT_EQ(stream.Push("\x80"
                        "b"),
            "😀b");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Utf8Stream, ReplacesWhatCannotBecomeACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\x80"), "\uFFFD");
  EXPECT_EQ(stream.Push("\xE4\xBD"), "");
  EXPECT_EQ(stream.Push("x"), "\uFFFDx");
  EXPECT_EQ(stream.Push("\xC0\x80"), "\uFFFD\uFFFD");  // overlong
  EXPECT_EQ(stream.Push("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(stream.Push("\xF0\x9F"), "");
  EXPECT_EQ(stream.Flush(), "\uFFFD");
  EXPECT_EQ(stream.Flush(), "");
}

TEST(Utf8Stream, DoesNotDependOnHowBytesArrive) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  constexpr std::string_view kParts[] = {"a",    "é",    "語",       "😀",        "\x80",
                                         "\xC3", "\xE4", "\xF0\x9F", "\xED\xA0", "\xFF"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += kParts[random() % std::size(kParts)];
    Utf8Stream whole;
    std::string expected = whole.Push(bytes);
    expected += whole.Flush();

    Utf8Stream stream;
    std::string text;
    for (size_t i = 0; i < bytes.size();) {
      const size_t length = 1 + random() % 3;
      text += stream.Push(bytes.substr(i, length));
      i += length;
    }
    text += stream.Flush();
    ASSERT_EQ(text, expected);
  }
}

}  // namespace
}  // namespace kvern::text
