// The tree against a list of texts, compared token by token.
#include "kv/radix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kv/tokens.h"

namespace kvern::kv {
namespace {

constexpr uint32_t kBlock = 4;

using Text = std::vector<TokenId>;

Text MakeText(std::string_view letters) {
  Text text;
  for (const char letter : letters) text.push_back(TokenId{static_cast<uint32_t>(letter)});
  return text;
}

std::vector<BlockSlot> Slots(size_t num_blocks) {
  return std::vector<BlockSlot>(num_blocks, BlockSlot(BlockId{7}));
}

// Puts the whole blocks of a text into the tree, as a publication would. Returns its end.
Node* Insert(RadixTree& tree, uint32_t root, const Text& text) {
  const auto whole = std::span(text).first(text.size() / kBlock * kBlock);
  const Match match = tree.Find(root, whole);
  Node* node = match.node;
  if (!node->is_root() && match.num_in_node < node->num_blocks()) {
    node = tree.Split(node, match.num_in_node);
  }
  const auto rest = whole.subspan(match.num_blocks * kBlock);
  if (rest.empty()) return node;
  const auto slots = Slots(rest.size() / kBlock);
  const RadixTree::NewBlocks blocks{rest, slots, 0};
  if (!node->is_root() && node->is_leaf()) {
    tree.Extend(node, blocks);
    return node;
  }
  return tree.AddChild(node, blocks);
}

TEST(RadixTreeTest, FindsTheLongestMatchOfWholeBlocksAndTheRowsAfter) {
  RadixTree tree(kBlock, 1);
  tree.AddRoot();
  Insert(tree, 0, MakeText("aaaabbbbcccc"));
  Insert(tree, 0, MakeText("aaaabbbxdddd"));
  struct Case {
    std::string_view text;
    size_t num_blocks, next_tokens;
  };
  for (const Case& c :
       {Case{"aaaabbbbcccc", 3, 0}, Case{"aaaabbbbccxx", 2, 2}, Case{"aaaabbbbcc", 2, 2},
        Case{"aaaabbbx", 2, 0}, Case{"aaaabbby", 1, 3}, Case{"aaaabbbb", 2, 0}, Case{"aaaab", 1, 1},
        Case{"aaxa", 0, 2}, Case{"xaaa", 0, 0}, Case{"a", 0, 1}}) {
    const Text text = MakeText(c.text);
    const Match match = tree.Find(0, text);
    EXPECT_EQ(match.num_blocks, c.num_blocks) << c.text;
    EXPECT_EQ(match.next_tokens, c.next_tokens) << c.text;
  }
  tree.CheckInvariants();
}

TEST(RadixTreeTest, ASplitKeepsBothPartsAndWhatIsKnownOfThem) {
  RadixTree tree(kBlock, 1);
  tree.AddRoot();
  const Text text = MakeText("aaaabbbbcccc");
  Node* const node = Insert(tree, 0, text);
  node->num_pins = 3;
  node->num_uses = 9;
  node->last_used_us = 77;
  node->retention = Retention::kHigh;
  const uint64_t chain = node->blocks.back().chain;
  Node* const upper = tree.Split(node, 1);
  tree.CheckInvariants();
  EXPECT_EQ(node->parent, upper);
  EXPECT_EQ(node->position, 4u);
  EXPECT_EQ(node->blocks.back().chain, chain);
  EXPECT_EQ(upper->num_pins, 3u);
  EXPECT_EQ(upper->num_uses, 9u);
  EXPECT_EQ(upper->last_used_us, 77);
  EXPECT_EQ(upper->retention, Retention::kHigh);
  EXPECT_EQ(tree.Find(0, text).num_blocks, 3u);
  EXPECT_EQ(tree.num_nodes(), 3u);
  EXPECT_EQ(tree.num_blocks(), 3u);
}

TEST(RadixTreeTest, RootsAreTreesOfTheirOwn) {
  RadixTree tree(kBlock, 1);
  tree.AddRoot();
  tree.AddRoot();
  const Text text = MakeText("aaaabbbb");
  const Node* const a = Insert(tree, 0, text);
  EXPECT_EQ(tree.Find(1, text).num_blocks, 0u);
  EXPECT_EQ(tree.Find(1, text).nodes_visited, 1u);
  const Node* const b = Insert(tree, 1, text);
  EXPECT_NE(a->blocks.back().chain, b->blocks.back().chain);
}

TEST(RadixTreeTest, PoppedAndDestroyedNodesAreGoneAndTheirIdsComeAgain) {
  RadixTree tree(kBlock, 1);
  tree.AddRoot();
  const Text text = MakeText("aaaabbbb");
  const size_t empty_bytes = tree.bytes();
  Node* const node = Insert(tree, 0, text);
  const uint32_t id = node->id;
  tree.PopBlock(node);
  EXPECT_EQ(tree.Find(0, text).num_blocks, 1u);
  tree.CheckInvariants();
  tree.PopBlock(node);
  tree.Detach(node);
  tree.Destroy(node);
  tree.CheckInvariants();
  EXPECT_EQ(tree.num_blocks(), 0u);
  EXPECT_EQ(tree.Find(0, text).num_blocks, 0u);
  EXPECT_EQ(tree.bytes(), empty_bytes);
  EXPECT_EQ(Insert(tree, 0, text)->id, id);
}

TEST(RadixTreeTest, ATailIsFoundAndCopiedFromOnly) {
  RadixTree tree(kBlock, 1);
  tree.AddRoot();
  Node* const node = Insert(tree, 0, MakeText("aaaa"));
  const Text tail = MakeText("bb"), text = MakeText("aaaabbb");
  const auto slots = Slots(1);
  tree.AddChild(node, {tail, slots, 0});
  tree.CheckInvariants();
  const Match match = tree.Find(0, text);
  EXPECT_EQ(match.num_blocks, 1u);
  EXPECT_EQ(match.next_tokens, 2u);
}

// ---- At random

class TreeFuzzer {
 public:
  explicit TreeFuzzer(uint64_t seed) : random_(seed) { tree_.AddRoot(); }

  void Step() {
    if (texts_.size() < 30 && random_() % 3 > 0) {
      texts_.push_back(RandomText(kBlock * (1 + random_() % 8)));
      Insert(tree_, 0, texts_.back());
    } else if (!texts_.empty()) {
      PopLeaf();
    }
  }

  void Check() {
    tree_.CheckInvariants();
    const Text wanted = RandomText(random_() % 40);
    size_t num_blocks = 0, num_tokens = 0;
    for (const Text& text : texts_) {
      const size_t same = CommonPrefix(text, wanted);
      num_blocks = std::max(num_blocks, same / kBlock);
      num_tokens = std::max(num_tokens, same);
    }
    const Match match = tree_.Find(0, wanted);
    ASSERT_EQ(match.num_blocks, num_blocks);
    ASSERT_EQ(match.num_blocks * kBlock + match.next_tokens, num_tokens);
    ASSERT_LE(match.nodes_visited, 2 * num_blocks + 3);
  }

 private:
  Text RandomText(size_t size) {
    Text text(size);
    for (TokenId& token : text) token = TokenId{random_() % 6 == 0 ? 1u : 0u};
    return text;
  }

  // The last block of a random leaf goes, and so does what no text of the list has any more.
  void PopLeaf() {
    Node* node = tree_.root(0);
    while (!node->is_leaf()) {
      node = *std::next(node->children->begin(),
                        static_cast<ptrdiff_t>(random_() % node->children->size()));
    }
    if (node->is_root()) return;
    Text gone;
    for (const Node* at = node; !at->is_root(); at = at->parent) {
      gone.insert(gone.begin(), at->tokens.begin(), at->tokens.end());
    }
    for (Text& text : texts_) {
      if (CommonPrefix(text, gone) == gone.size()) text.resize(gone.size() - kBlock);
    }
    std::erase_if(texts_, [](const Text& text) { return text.empty(); });
    tree_.PopBlock(node);
    if (node->num_blocks() > 0) return;
    tree_.Detach(node);
    tree_.Destroy(node);
  }

  std::mt19937_64 random_;
  RadixTree tree_{kBlock, 1};
  std::vector<Text> texts_;
};

TEST(RadixTreeTest, MatchesAListOfTexts) {
  const uint64_t first_seed = std::random_device{}();
  for (uint64_t seed = first_seed; seed < first_seed + 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TreeFuzzer fuzzer(seed);
    for (int step = 0; step < 500; ++step) {
      fuzzer.Step();
      fuzzer.Check();
      if (testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace kvern::kv
