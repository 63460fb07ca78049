// Prompt lookup against a search through the whole text.
#include "engine/spec/ngram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "engine/spec/ngram_index.h"

namespace kvern::engine {
namespace {

using Text = std::vector<TokenId>;

Text Letters(std::string_view letters) {
  Text text;
  for (const char letter : letters) text.push_back(TokenId(letter));
  return text;
}

Text RandomText(uint64_t seed, size_t num_tokens, uint32_t vocab_size) {
  SplitMix64 random(seed);
  Text text(num_tokens);
  for (TokenId& token : text) token = TokenId(random.Below(vocab_size));
  return text;
}

std::optional<size_t> Search(const Text& text) {
  for (const size_t length : {4, 3, 2}) {
    for (size_t end = text.size() - 1; text.size() > length && end >= length; --end) {
      if (std::equal(text.end() - length, text.end(), text.begin() + end - length)) return end;
    }
  }
  return {};
}

Text Propose(Proposer& proposer, const Text& text, size_t max_draft, uint64_t key = 1) {
  Text draft;
  const DraftRequest request{SequenceKey(key), text, max_draft, &draft};
  proposer.Propose({&request, 1});
  return draft;
}

TEST(NgramIndexTest, FindsWhatASearchFinds) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    SplitMix64 random(seed);
    const Text whole = RandomText(seed, 400, 2 + static_cast<uint32_t>(random.Below(30)));
    NgramIndex index;
    Text text;
    while (text.size() < whole.size()) {
      const size_t more = std::min(1 + random.Below(9), whole.size() - text.size());
      text.insert(text.end(), whole.begin() + text.size(), whole.begin() + text.size() + more);
      index.Update(text);
      ASSERT_EQ(index.FindContinuation(text), Search(text)) << "at " << text.size();
    }
  }
}

TEST(NgramIndexTest, ALongTextKeepsWithinItsMemoryAndKnowsWhatWasRecent) {
  Text text = RandomText(1, 200'000, 50'000);
  NgramIndex index;
  for (size_t end = 10'000; end <= text.size(); end += 10'000) {
    index.Update(std::span(text).first(end));
  }
  EXPECT_EQ(index.bytes(), NgramIndex::kMaxBytes);
  for (size_t back = 100; back < 5'000; back += 100) {
    const size_t from = text.size() - back;
    for (size_t i = 0; i < 4; ++i) text.push_back(text[from + i]);
    index.Update(text);
    EXPECT_EQ(index.FindContinuation(text), from + 4);
  }
}

TEST(NgramProposerTest, GoesOnAsTheLatestOccurrenceDid) {
  const auto proposer = MakeNgramProposer();
  EXPECT_EQ(Propose(*proposer, Letters("abcXabcYZ?abc"), 3), Letters("YZ?"));
}

TEST(NgramProposerTest, PrefersALongerMatchToALaterOne) {
  const auto proposer = MakeNgramProposer();
  EXPECT_EQ(Propose(*proposer, Letters("abcdXcdYabcd"), 1), Letters("X"));
}

TEST(NgramProposerTest, APeriodGoesOnBeyondTheEnd) {
  const auto proposer = MakeNgramProposer();
  EXPECT_EQ(Propose(*proposer, Letters("abcabc"), 8), Letters("abcabcab"));
}

TEST(NgramProposerTest, ProposesNothingForWhatIsNew) {
  const auto proposer = MakeNgramProposer();
  for (const std::string_view text : {"a", "ab", "abcdef", "aXbXc"}) {
    EXPECT_TRUE(Propose(*proposer, Letters(text), 4, text.size()).empty()) << text;
  }
}

TEST(NgramProposerTest, SequencesAreApartAndMayBeForgotten) {
  const auto proposer = MakeNgramProposer();
  EXPECT_EQ(Propose(*proposer, Letters("abXab"), 1, 1), Letters("X"));
  EXPECT_EQ(Propose(*proposer, Letters("abYab"), 1, 2), Letters("Y"));
  proposer->Forget(SequenceKey{1});
  EXPECT_EQ(Propose(*proposer, Letters("abZa"), 1, 1), Letters(""));
  EXPECT_EQ(Propose(*proposer, Letters("abZab"), 1, 1), Letters("Z"));
}

}  // namespace
}  // namespace kvern::engine
