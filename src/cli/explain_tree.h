// What `kvern explain tree` shows: what the KV library's prefix tree makes of a list of prompts.
//
// The prompts go through a real KvCache one after the other, with blocks that hold nothing: each is
// explained, computed (in name only) and released, so that the next one finds its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kvern/kv.h"

namespace kvern::cli {

using TreePrompts = std::vector<std::vector<TokenId>>;

// The bytes that a run of tokens stands for.
using TokensToText = std::function<std::string(std::span<const TokenId> tokens)>;

struct PrefixTree {
  struct Node {
    kv::TreeNode node;  // not the root
    size_t num_blocks = 0;
    size_t num_prompts = 0;  // that begin with the text up to its end
  };

  uint32_t block_tokens = 0;
  std::vector<kv::Explanation> prompts;  // what each would find when it came
  std::vector<Node> nodes;               // children follow their parent

  size_t num_blocks() const;
};

// Blocks that the prompts would take without sharing.
size_t NumSeparateBlocks(const TreePrompts& prompts, uint32_t block_tokens);

// REQUIRES: no prompt is empty. Errors: those of the library.
Result<PrefixTree> MakePrefixTree(const TreePrompts& prompts, uint32_t block_tokens);

std::string PrefixTreeText(const PrefixTree& tree, const TreePrompts& prompts,
                           const TokensToText& to_text);
nlohmann::ordered_json PrefixTreeJson(const PrefixTree& tree, const TreePrompts& prompts,
                                      const TokensToText& to_text);

}  // namespace kvern::cli
