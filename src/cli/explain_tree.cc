#include "cli/explain_tree.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "text/utf8.h"

namespace kvern::cli {
namespace {

using Tokens = std::span<const TokenId>;

constexpr size_t kBlockBytes = kv::kBlockAlignment;  // the least there is
constexpr size_t kMaxQuoted = 60;                    // characters of a text
constexpr size_t kMaxBlocksShown = 4;                // of one edge

size_t BlocksOf(size_t num_tokens, uint32_t block_tokens) {
  return (num_tokens + block_tokens - 1) / block_tokens;
}

std::string Count(size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// In quotes, on one line, whole characters only, shortened in its middle.
std::string Quote(const std::string& bytes) {
  text::Utf8Stream stream;
  const std::string whole = stream.Push(bytes) + stream.Flush();
  std::vector<std::string> characters;
  for (size_t offset = 0; offset < whole.size();) {
    const char32_t code_point = text::NextCodePoint(whole, offset);
    std::string& character = characters.emplace_back();
    if (code_point == U'"' || code_point == U'\\') character = '\\';
    if (code_point == U'\n') {
      character = "\\n";
    } else if (code_point < 0x20 || code_point == 0x7F) {
      character = fmt::format("\\x{:02X}", static_cast<uint32_t>(code_point));
    } else {
      text::AppendUtf8(code_point, character);
    }
  }
  if (characters.size() > kMaxQuoted) {
    const auto middle = characters.begin() + kMaxQuoted / 2;
    *middle = "…";
    characters.erase(middle + 1, characters.end() - kMaxQuoted / 2);
  }
  return std::accumulate(characters.begin(), characters.end(), std::string("\"")) + '"';
}

std::string Describe(const kv::Miss& miss, const TokensToText& to_text) {
  switch (miss.reason) {
    case kv::MissReason::kNeverSeen:
      return "no text that is cached goes on here";
    case kv::MissReason::kOtherToken:
      return fmt::format("at {} it has {}, where a cached text has {}", *miss.differs_at,
                         Quote(to_text({&*miss.wanted, 1})), Quote(to_text({&*miss.cached, 1})));
    case kv::MissReason::kLogitsNeeded:
      return "cached, but computed once more for the token that comes next";
    default:
      return std::string(kv::ToString(miss.reason));
  }
}

void AppendPrompt(std::string& out, const kv::Explanation& explanation, size_t num_tokens,
                  uint32_t block_tokens, const TokensToText& to_text) {
  const kv::PromptSplit& split = explanation.split;
  out += fmt::format("    {}: {} cached", Count(num_tokens, "token"), split.hit());
  if (split.ram > 0) out += fmt::format(", {}", Count(BlocksOf(split.ram, block_tokens), "block"));
  if (split.partial > 0) {
    out += fmt::format(", {} copied out of a block", Count(split.partial, "row"));
  }
  out += '\n';
  for (const kv::Miss& miss : explanation.misses) {
    out += fmt::format("    {} from {} on: {}\n", Count(miss.num_tokens, "token"), miss.position,
                       Describe(miss, to_text));
  }
}

// The edge's text, each block in quotes of its own.
std::string EdgeText(const PrefixTree::Node& node, uint32_t block_tokens,
                     const TokensToText& to_text) {
  std::string text;
  const Tokens tokens(node.node.tokens);
  for (size_t block = 0; block < node.num_blocks; ++block) {
    const bool is_left_out = node.num_blocks > kMaxBlocksShown && block + 1 >= kMaxBlocksShown &&
                             block + 1 < node.num_blocks;
    if (is_left_out) {
      if (block + 1 == kMaxBlocksShown) text += "… ";
      continue;
    }
    const Tokens rest = tokens.subspan(block * block_tokens);
    text += Quote(to_text(rest.first(std::min<size_t>(rest.size(), block_tokens)))) + ' ';
  }
  return text;
}

// Whether another child of the same parent follows.
bool HasNext(const PrefixTree& tree, size_t index) {
  const size_t depth = tree.nodes[index].node.depth;
  const auto next =
      std::find_if(tree.nodes.begin() + static_cast<ptrdiff_t>(index) + 1, tree.nodes.end(),
                   [&](const PrefixTree::Node& other) { return other.node.depth <= depth; });
  return next != tree.nodes.end() && next->node.depth == depth;
}

// `lines`: what is drawn under each ancestor, by depth.
void AppendNode(std::string& out, const PrefixTree& tree, size_t index,
                std::vector<std::string>& lines, const TokensToText& to_text) {
  const PrefixTree::Node& node = tree.nodes[index];
  const bool has_next = HasNext(tree, index);
  lines.resize(node.node.depth - 1);
  const size_t num_rows = node.node.tokens.size();
  const bool is_open = num_rows % tree.block_tokens > 0;
  out +=
      fmt::format("{}{} {} {}{}, {}\n", std::accumulate(lines.begin(), lines.end(), std::string()),
                  has_next ? "├─" : "└─", EdgeText(node, tree.block_tokens, to_text),
                  Count(node.num_blocks, "block"),
                  is_open ? fmt::format(" with {}", Count(num_rows, "row")) : "",
                  Count(node.num_prompts, "prompt"));
  lines.push_back(has_next ? "│  " : "   ");
}

nlohmann::ordered_json TokenJson(TokenId token, const TokensToText& to_text) {
  return {{"id", static_cast<uint32_t>(token)}, {"text", to_text({&token, 1})}};
}

nlohmann::ordered_json MissJson(const kv::Miss& miss, const TokensToText& to_text) {
  nlohmann::ordered_json json = {{"reason", kv::ToString(miss.reason)},
                                 {"position", miss.position},
                                 {"num_tokens", miss.num_tokens}};
  if (miss.differs_at) {
    json["differs_at"] = *miss.differs_at;
    json["wanted"] = TokenJson(*miss.wanted, to_text);
    json["cached"] = TokenJson(*miss.cached, to_text);
  }
  return json;
}

nlohmann::ordered_json Ids(Tokens tokens) {
  nlohmann::ordered_json ids = nlohmann::ordered_json::array();
  for (const TokenId token : tokens) ids.push_back(static_cast<uint32_t>(token));
  return ids;
}

// Computes a prompt in name only, and lets it go.
Status Run(kv::KvCache& cache, kv::NamespaceId ns, Tokens tokens) {
  kv::Prompt prompt;
  prompt.ns = ns;
  prompt.tokens = tokens;
  kv::Lease lease = cache.Lookup(prompt);
  KVERN_ASSIGN_OR_RETURN(kv::Sequence sequence, cache.Admit(lease));
  KVERN_RETURN_IF_ERROR(sequence.Append(tokens.subspan(sequence.length())));
  sequence.Commit(sequence.length());
  return {};
}

std::vector<PrefixTree::Node> NodesOf(const std::vector<kv::TreeNode>& nodes,
                                      const TreePrompts& prompts, uint32_t block_tokens) {
  std::vector<PrefixTree::Node> result;
  std::vector<TokenId> path;
  for (const kv::TreeNode& node : nodes) {
    if (node.depth == 0) continue;
    path.resize(node.position);
    path.insert(path.end(), node.tokens.begin(), node.tokens.end());
    const auto begins_with_path = [&](const std::vector<TokenId>& prompt) {
      return std::ranges::mismatch(path, prompt).in1 == path.end();
    };
    result.push_back(
        {.node = node,
         .num_blocks = BlocksOf(node.tokens.size(), block_tokens),
         .num_prompts = static_cast<size_t>(std::ranges::count_if(prompts, begins_with_path))});
  }
  return result;
}

}  // namespace

size_t PrefixTree::num_blocks() const {
  size_t sum = 0;
  for (const Node& node : nodes) sum += node.num_blocks;
  return sum;
}

size_t NumSeparateBlocks(const TreePrompts& prompts, uint32_t block_tokens) {
  size_t sum = 0;
  for (const auto& prompt : prompts) sum += BlocksOf(prompt.size(), block_tokens);
  return sum;
}

Result<PrefixTree> MakePrefixTree(const TreePrompts& prompts, uint32_t block_tokens) {
  const auto store = kv::MakeHostStore([](kv::GroupId, std::byte*, const std::byte*, uint32_t) {});
  kv::KvCacheOptions options;
  kv::GroupSpec& group = options.groups.emplace_back();
  group.block_bytes = kBlockBytes;
  group.block_tokens = block_tokens;
  // All of them at once, so that nothing is ever evicted.
  options.budget_bytes = NumSeparateBlocks(prompts, block_tokens) * kBlockBytes;
  KVERN_ASSIGN_OR_RETURN(const auto cache, kv::KvCache::Make(std::move(options), store.get()));
  KVERN_ASSIGN_OR_RETURN(const kv::NamespaceId ns, cache->OpenNamespace({}));
  PrefixTree tree;
  tree.block_tokens = block_tokens;
  for (const auto& prompt : prompts) {
    tree.prompts.push_back(cache->Explain(ns, prompt));
    KVERN_RETURN_IF_ERROR(Run(*cache, ns, prompt));
  }
  tree.nodes = NodesOf(cache->Tree(ns), prompts, block_tokens);
  return tree;
}

std::string PrefixTreeText(const PrefixTree& tree, const TreePrompts& prompts,
                           const TokensToText& to_text) {
  std::string out = fmt::format("Blocks of {}.\n", Count(tree.block_tokens, "token"));
  for (size_t i = 0; i < prompts.size(); ++i) {
    out += fmt::format("\n{:2}  {}\n", i + 1, Quote(to_text(prompts[i])));
    AppendPrompt(out, tree.prompts[i], prompts[i].size(), tree.block_tokens, to_text);
  }
  out += fmt::format("\nThe tree: {}; without sharing {}.\n\n", Count(tree.num_blocks(), "block"),
                     NumSeparateBlocks(prompts, tree.block_tokens));
  out += "root\n";
  std::vector<std::string> lines;
  for (size_t i = 0; i < tree.nodes.size(); ++i) AppendNode(out, tree, i, lines, to_text);
  return out;
}

nlohmann::ordered_json PrefixTreeJson(const PrefixTree& tree, const TreePrompts& prompts,
                                      const TokensToText& to_text) {
  nlohmann::ordered_json json = {
      {"block_tokens", tree.block_tokens},
      {"num_blocks", tree.num_blocks()},
      {"num_blocks_without_sharing", NumSeparateBlocks(prompts, tree.block_tokens)},
      {"prompts", nlohmann::ordered_json::array()},
      {"nodes", nlohmann::ordered_json::array()}};
  for (size_t i = 0; i < prompts.size(); ++i) {
    nlohmann::ordered_json misses = nlohmann::ordered_json::array();
    for (const kv::Miss& miss : tree.prompts[i].misses) misses.push_back(MissJson(miss, to_text));
    const kv::PromptSplit& split = tree.prompts[i].split;
    json["prompts"].push_back({{"text", to_text(prompts[i])},
                               {"tokens", Ids(prompts[i])},
                               {"cached_tokens", split.hit()},
                               {"in_whole_blocks", split.ram},
                               {"copied_rows", split.partial},
                               {"misses", misses}});
  }
  for (const PrefixTree::Node& node : tree.nodes) {
    json["nodes"].push_back({{"depth", node.node.depth},
                             {"position", node.node.position},
                             {"text", to_text(node.node.tokens)},
                             {"tokens", Ids(node.node.tokens)},
                             {"num_blocks", node.num_blocks},
                             {"num_prompts", node.num_prompts}});
  }
  return json;
}

}  // namespace kvern::cli
