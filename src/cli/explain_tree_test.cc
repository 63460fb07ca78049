#include "cli/explain_tree.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

namespace kvern::cli {
namespace {

std::vector<TokenId> Letters(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char letter : text) tokens.push_back(TokenId{static_cast<uint8_t>(letter)});
  return tokens;
}

std::string ToText(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) text += static_cast<char>(token);
  return text;
}

const TreePrompts kPrompts = {Letters("the cat sat"),      Letters("the cat ran"),
                              Letters("the cow"),          Letters("a dog"),
                              Letters("the cat sat down"), Letters("the cat sat")};

TEST(PrefixTreeText, IsTheGoldenText) {
  std::ifstream file("tests/data/explain_tree.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(PrefixTreeText(MakePrefixTree(kPrompts, 4).value(), kPrompts, ToText), golden.str());
}

TEST(PrefixTreeText, ShortensAndEscapes) {
  const TreePrompts prompts = {Letters("a\n\"\x01\xFF" + std::string(100, 'x'))};
  const std::string text = PrefixTreeText(MakePrefixTree(prompts, 4).value(), prompts, ToText);
  EXPECT_NE(text.find("1  \"a\\n\\\"\\x01\uFFFDxxx"), std::string::npos) << text;
  EXPECT_NE(text.find("xxx…xxx"), std::string::npos) << text;
  EXPECT_NE(text.find("\"xxxx\" … \"xxxx\"  26 blocks, 1 prompt\n   └─ \"x\"  1 block with"),
            std::string::npos)
      << text;
}

TEST(PrefixTreeJson, AddsUp) {
  const auto json = PrefixTreeJson(MakePrefixTree(kPrompts, 4).value(), kPrompts, ToText);
  EXPECT_EQ(json["prompts"][1]["cached_tokens"], 8);
  EXPECT_EQ(json["prompts"][1]["misses"][0]["differs_at"], 8);
  EXPECT_EQ(json["prompts"][1]["misses"][0]["wanted"]["text"], "r");
  EXPECT_EQ(json["prompts"][1]["misses"][0]["cached"]["text"], "s");
  EXPECT_EQ(json["prompts"][2]["copied_rows"], 1);
  EXPECT_EQ(json["prompts"][4]["cached_tokens"], 11);
  EXPECT_EQ(json["prompts"][5]["misses"][0]["reason"], "logits_needed");
  for (size_t i = 0; i < kPrompts.size(); ++i) {
    size_t sum = json["prompts"][i]["cached_tokens"];
    for (const auto& miss : json["prompts"][i]["misses"]) sum += miss["num_tokens"].get<size_t>();
    EXPECT_EQ(sum, kPrompts[i].size());
  }
  size_t num_blocks = 0;
  for (const auto& node : json["nodes"]) num_blocks += node["num_blocks"].get<size_t>();
  EXPECT_EQ(json["num_blocks"], num_blocks);
  // Siblings are in the order of their tokens.
  EXPECT_EQ(json["nodes"][0]["text"], "a do");
  EXPECT_EQ(json["nodes"][2]["text"], "the ");
  EXPECT_EQ(json["nodes"][2]["num_prompts"], 5);
}

}  // namespace
}  // namespace kvern::cli
