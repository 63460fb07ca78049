// The draft model as proposer: what it guesses is what a fresh model would, whatever was rejected,
// evicted and forgotten before.
#include "engine/spec/draft.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "engine/spec/spec_test_util.h"

namespace kvern::engine {
namespace {

constexpr size_t kManyBlocks = 400;

Text RandomText(SplitMix64& random, size_t num_tokens) {
  Text text(num_tokens);
  for (TokenId& token : text) token = TokenId(random.Below(FakeExecutor::Options().vocab_size));
  return text;
}

Text RandomText(uint64_t seed, size_t num_tokens) {
  SplitMix64 random(seed);
  return RandomText(random, num_tokens);
}

Text operator+(Text text, const Text& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

std::unique_ptr<Proposer> MakeProposerOf(FakeModel& model) {
  return std::move(
             MakeDraftProposer(model.parts(), {.vocab_size = model.executor.info().vocab_size}))
      .value();
}

// The proposals for texts whose keys are their indices.
std::vector<Text> Propose(Proposer& proposer, const std::vector<Text>& texts, size_t max_draft,
                          uint64_t first_key = 0) {
  std::vector<Text> drafts(texts.size());
  std::vector<DraftRequest> requests;
  for (size_t i = 0; i < texts.size(); ++i) {
    requests.push_back({SequenceKey{first_key + i}, texts[i], max_draft, &drafts[i]});
  }
  proposer.Propose(requests);
  return drafts;
}

// How a text goes on, computed anew for each token.
Text Continuation(const FakeExecutor::Options& options, const Text& text, size_t num_tokens) {
  FakeExecutor::Options roomy = options;
  roomy.max_step_tokens = options.max_positions;
  FakeModel model(roomy, kManyBlocks);
  const Decoded decoded = Decode(model.parts(), nullptr, {text}, WithTemperature(0), num_tokens);
  return {decoded.texts[0].begin() + static_cast<ptrdiff_t>(text.size()), decoded.texts[0].end()};
}

TEST(DraftProposerTest, GuessesWhatTheModelWouldSay) {
  FakeModel model({}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  const std::vector<Text> texts = {RandomText(1, 3), RandomText(2, 16), RandomText(3, 40)};
  const auto drafts = Propose(*proposer, texts, 6);
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(drafts[i], Continuation({}, texts[i], 6)) << i;
  }
  EXPECT_EQ(model.executor.num_steps, 6u) << "one step to catch up, and one a further guess";
  EXPECT_EQ(model.executor.num_slices_max, 3u);
}

TEST(DraftProposerTest, KeepsWhatWasAcceptedAndTakesTheRestBack) {
  FakeModel model({}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  Text text = RandomText(1, 30);
  for (const size_t accepted : {6, 0, 3, 5, 1, 6, 2}) {
    const Text draft = Propose(*proposer, {text}, 6)[0];
    ASSERT_EQ(draft, Continuation({}, text, 6));
    const size_t before = model.executor.num_computed;
    text.insert(text.end(), draft.begin(), draft.begin() + static_cast<ptrdiff_t>(accepted));
    const TokenId other{accepted < 6 ? (static_cast<uint32_t>(draft[accepted]) + 1) % 24 : 0};
    text.push_back(other);
    Propose(*proposer, {text}, 1);
    // The sixth guess was never computed.
    EXPECT_EQ(model.executor.num_computed - before, accepted == 6 ? 2u : 1u);
  }
}

TEST(DraftProposerTest, TheSameTextAgainGivesTheSameGuesses) {
  FakeModel model({}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  for (const size_t length : {1, 16, 17}) {
    const std::vector<Text> texts = {RandomText(1, length)};
    const auto first = Propose(*proposer, texts, 4, length);
    EXPECT_EQ(Propose(*proposer, texts, 4, length), first);
    EXPECT_EQ(Propose(*proposer, texts, 4, length), first);
  }
}

TEST(DraftProposerTest, ALongPromptTakesSeveralCallsAndDelaysNobody) {
  FakeModel model({.max_step_tokens = 64}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  const Text small = RandomText(1, 10);
  const Text large = RandomText(2, 200);
  for (int call = 0; call < 3; ++call) {
    const auto drafts = Propose(*proposer, {large, small}, 2);
    EXPECT_TRUE(drafts[0].empty());
    EXPECT_EQ(drafts[1].size(), 2u);
  }
  EXPECT_EQ(Propose(*proposer, {large, small}, 2)[0], Continuation({}, large, 2));
}

TEST(DraftProposerTest, ASharedPrefixIsComputedOnce) {
  FakeModel model({.max_step_tokens = 64}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  const Text prefix = RandomText(1, 160);
  std::vector<Text> texts;
  for (uint64_t i = 0; i < 5; ++i) texts.push_back(prefix + RandomText(10 + i, 8));
  std::vector<Text> drafts;
  for (int call = 0; call < 6; ++call) drafts = Propose(*proposer, texts, 1);
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(drafts[i], Continuation({}, texts[i], 1));
  // Each later call computes the last token of those that are up to date.
  EXPECT_LE(model.executor.num_computed, 160u + 5 * 8 + 5 * 5);
}

TEST(DraftProposerTest, IdleSequencesMakeRoomTheLongestUnusedFirst) {
  FakeModel model({.max_step_tokens = 200}, /*num_blocks=*/9);
  const auto proposer = MakeProposerOf(model);
  const std::vector<Text> texts = {RandomText(1, 40), RandomText(2, 40), RandomText(3, 40)};
  for (uint64_t key = 0; key < 3; ++key) {
    EXPECT_EQ(Propose(*proposer, {texts[key]}, 2, key)[0].size(), 2u);
  }
  Propose(*proposer, {texts[0]}, 2, 0);
  const size_t before = model.executor.num_computed;
  EXPECT_EQ(Propose(*proposer, {RandomText(4, 40)}, 2, 3)[0].size(), 2u);
  EXPECT_EQ(Propose(*proposer, {texts[0]}, 2, 0)[0].size(), 2u);
  EXPECT_EQ(model.executor.num_computed - before, 41u + 2) << "the one used last was kept";
}

TEST(DraftProposerTest, WithoutRoomItProposesNothingForSomeAndTheRestIsRight) {
  FakeModel model({.max_step_tokens = 300}, /*num_blocks=*/8);
  const auto proposer = MakeProposerOf(model);
  std::vector<Text> texts;
  for (uint64_t i = 0; i < 5; ++i) texts.push_back(RandomText(i, 40));
  size_t num_drafted = 0;
  for (int call = 0; call < 3; ++call) {
    const auto drafts = Propose(*proposer, texts, 3);
    num_drafted = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (drafts[i].empty()) continue;
      ++num_drafted;
      EXPECT_EQ(drafts[i], Continuation({}, texts[i], 3));
    }
    EXPECT_EQ(num_drafted, 2u);
  }
}

TEST(DraftProposerTest, DraftsUpToItsContextAndNotBeyond) {
  FakeModel model({.max_positions = 50}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  const Text text = RandomText(1, 52);
  for (size_t length = 45; length <= 52; ++length) {
    const Text now(text.begin(), text.begin() + static_cast<ptrdiff_t>(length));
    EXPECT_EQ(Propose(*proposer, {now}, 4)[0].size(),
              length > 50 ? 0 : std::min<size_t>(4, 51 - length));
  }
}

TEST(DraftProposerTest, AFailureConcernsOneSequenceUntilItIsForgotten) {
  FakeModel model({}, kManyBlocks);
  const auto proposer = MakeProposerOf(model);
  const TokenId bad{5};
  model.executor.poison = bad;
  const std::vector<Text> texts = {Text(10, TokenId{1}), Text(10, TokenId{2}) + Text{bad}};
  for (int call = 0; call < 2; ++call) {
    const auto drafts = Propose(*proposer, texts, 1);
    EXPECT_EQ(drafts[0].size(), 1u);
    EXPECT_TRUE(drafts[1].empty());
  }
  EXPECT_EQ(model.executor.num_computed, 10u + 11 + 1);
  model.executor.poison.reset();
  proposer->Forget(SequenceKey{1});
  EXPECT_EQ(Propose(*proposer, texts, 1)[1].size(), 1u);
}

// Random batches of growing texts in too little memory, some ending, some coming back.
void LiveRandomly(uint64_t seed, FakeExecutor::Options options) {
  constexpr size_t kMaxDraft = 4;
  SCOPED_TRACE(seed);
  SplitMix64 random(seed);
  options.max_positions = 150;
  options.max_step_tokens = 48;
  FakeModel model(options, /*num_blocks=*/(12 + random.Below(30)) * options.groups.size());
  const auto proposer = MakeProposerOf(model);
  const Text shared = RandomText(random, 40);
  std::map<uint64_t, Text> texts;
  uint64_t next_key = 0;
  size_t num_right = 0;
  for (int call = 0; call < 60; ++call) {
    if (texts.size() < 6) {
      texts[next_key++] =
          (random.Below(2) == 0 ? shared : Text()) + RandomText(random, 1 + random.Below(60));
    }
    std::map<uint64_t, Text> drafts;
    std::vector<DraftRequest> requests;
    for (auto& [key, text] : texts) {
      if (random.Below(4) == 0) continue;
      requests.push_back({SequenceKey{key}, text, 1 + random.Below(kMaxDraft), &drafts[key]});
    }
    proposer->Propose(requests);
    model.engine.cache->CheckInvariants();
    for (auto& [key, draft] : drafts) {
      Text& text = texts[key];
      ASSERT_EQ(draft, Continuation(options, text, draft.size())) << "key " << key;
      num_right += draft.size();
      draft.resize(random.Below(draft.size() + 1));
      // Plain steps may come between.
      text = text + draft + RandomText(random, 1 + random.Below(3));
      const bool has_ended = text.size() > 145 || random.Below(20) == 0;
      if (has_ended || random.Below(20) == 0) proposer->Forget(SequenceKey{key});
      if (has_ended) texts.erase(key);
    }
  }
  EXPECT_GT(num_right, 100u);
  for (uint64_t key = 0; key < next_key; ++key) proposer->Forget(SequenceKey{key});
  EXPECT_TRUE(model.engine.IsEmptyOnceDropped());
}

TEST(DraftProposerTest, RandomLivesGiveTheGuessesOfAFreshModel) {
  for (uint64_t seed = 1; seed <= 8; ++seed) LiveRandomly(seed, {});
}

TEST(DraftProposerTest, AModelWithAWindowToo) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    LiveRandomly(seed, {.memory = 4,
                        .groups = {kv::TestEngine::FullGroup(), kv::TestEngine::WindowGroup(20)}});
  }
}

}  // namespace
}  // namespace kvern::engine
