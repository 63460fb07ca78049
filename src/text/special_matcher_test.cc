#include "text/special_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

namespace kvern::text {
namespace {

using Special = SpecialMatcher::Special;

struct Fragment {
  size_t begin;
  size_t end;
  std::optional<TokenId> id;
};

// The definition: one token after the other, the longest first, cuts all text that is left.
std::vector<Fragment> CutNaively(std::vector<Special> specials, const std::string& text) {
  std::ranges::sort(specials, [](const Special& a, const Special& b) {
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.id < b.id;
  });
  std::list<Fragment> fragments = {{0, text.size(), std::nullopt}};
  for (const Special& special : specials) {
    for (auto it = fragments.begin(); it != fragments.end(); ++it) {
      if (it->id) continue;
      const size_t found = text.substr(0, it->end).find(special.text, it->begin);
      if (found == std::string::npos) continue;
      size_t behind = found + special.text.size();
      while (special.strips_after && behind < it->end && text[behind] == ' ') ++behind;
      fragments.insert(it, {it->begin, found, std::nullopt});
      fragments.insert(it, {found, behind, special.id});
      it->begin = behind;
      --it;
    }
  }
  return {fragments.begin(), fragments.end()};
}

TEST(SpecialMatcher, EqualsTheDefinition) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const auto random_text = [&](size_t length) {
    std::string text;
    while (text.size() < length) text.push_back("ab <"[random() % 4]);
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Special> specials;
    for (uint32_t id = 0; id < random() % 6; ++id) {
      const std::string text = random_text(1 + random() % 5);
      const auto same = [&](const Special& special) { return special.text == text; };
      if (std::ranges::any_of(specials, same)) continue;
      specials.push_back({text, TokenId(id), random() % 4 == 0});
    }
    const std::string text = random_text(random() % 30);
    std::vector<Fragment> expected = CutNaively(specials, text);
    std::erase_if(expected, [](const Fragment& fragment) { return !fragment.id; });

    const auto matches = SpecialMatcher(specials).Find(text);
    ASSERT_EQ(matches.size(), expected.size()) << text;
    for (size_t i = 0; i < matches.size(); ++i) {
      ASSERT_EQ(matches[i].id, *expected[i].id) << text;
      ASSERT_EQ(matches[i].begin, expected[i].begin) << text;
      ASSERT_EQ(matches[i].end, expected[i].end) << text;
    }
  }
}

TEST(SpecialMatcher, LongRunsStayLinear) {
  std::vector<Special> specials;
  for (uint32_t length = 1; length <= 31; ++length) {
    specials.push_back({std::string(length, '\n'), TokenId(length)});
  }
  const auto matches = SpecialMatcher(std::move(specials)).Find(std::string(31'001, '\n'));
  ASSERT_EQ(matches.size(), 1'001u);
  EXPECT_EQ(matches.front().id, TokenId(31));
  EXPECT_EQ(matches.back().id, TokenId(1));
}

}  // namespace
}  // namespace kvern::text
