// kvern explain tree: the prefix tree of a list of prompts.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/default_model.h"
#include "cli/explain_tree.h"
#include "cli/input_text.h"
#include "cli/json_output.h"
#include "model/gguf.h"
#include "model/vocab_loader.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace kvern::cli {
namespace {

constexpr uint32_t kCharsBlockTokens = 4;
constexpr uint32_t kMaxTreeBlockTokens = 1024;

struct TreeFlags {
  std::vector<std::string> prompts;
  std::string file;
  std::string model;
  bool chars = false;
  std::optional<uint32_t> block_tokens;
  bool json = false;
};

// A JSON list of texts, or one text a line.
Result<std::vector<std::string>> SplitPrompts(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  std::vector<std::string> prompts;
  if (first == std::string::npos || text[first] != '[') {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) prompts.push_back(std::move(line));
    }
    return prompts;
  }
  const auto list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  bool is_list = list.is_array();
  for (size_t i = 0; is_list && i < list.size(); ++i) is_list = list[i].is_string();
  if (!is_list) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "the prompts begin with [ and are no JSON list of texts: give one such list, or "
                  "one prompt a line");
  }
  for (const auto& prompt : list) prompts.push_back(prompt.get<std::string>());
  return prompts;
}

Result<std::vector<std::string>> ReadPrompts(const TreeFlags& flags) {
  if (!flags.prompts.empty() && !flags.file.empty()) {
    return Errorf(ErrorCode::kInvalidArgument, "-p and -f both give prompts: use one of them");
  }
  std::vector<std::string> prompts = flags.prompts;
  if (prompts.empty()) {
    KVERN_ASSIGN_OR_RETURN(const std::string text,
                           ReadInputText({.prompt = std::nullopt, .file = flags.file}));
    KVERN_ASSIGN_OR_RETURN(prompts, SplitPrompts(text));
  }
  if (prompts.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "there is no prompt: give some with -p, or one a line in a file (-f)");
  }
  return prompts;
}

// Each character is a token; its id is the code point.
std::vector<TokenId> Characters(const std::string& text) {
  std::vector<TokenId> tokens;
  for (size_t offset = 0; offset < text.size();) {
    tokens.push_back(TokenId{static_cast<uint32_t>(text::NextCodePoint(text, offset))});
  }
  return tokens;
}

std::string CharactersToText(std::span<const TokenId> tokens) {
  std::string text;
  for (const TokenId token : tokens) text::AppendUtf8(static_cast<char32_t>(token), text);
  return text;
}

Status Explain(const TreeFlags& flags) {
  const uint32_t block_tokens =
      flags.block_tokens.value_or(flags.chars ? kCharsBlockTokens : kBlockTokens);
  if (block_tokens < 1 || block_tokens > kMaxTreeBlockTokens) {
    return Errorf(ErrorCode::kInvalidArgument, "--block-tokens: {} is outside 1 … {}", block_tokens,
                  kMaxTreeBlockTokens);
  }
  KVERN_ASSIGN_OR_RETURN(const std::vector<std::string> texts, ReadPrompts(flags));
  std::unique_ptr<text::Tokenizer> tokenizer;
  if (!flags.chars) {
    KVERN_ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model));
    KVERN_ASSIGN_OR_RETURN(const model::Gguf gguf, model::Gguf::Open(path));
    KVERN_ASSIGN_OR_RETURN(tokenizer, model::LoadTokenizer(gguf));
  }
  TreePrompts prompts;
  for (const std::string& text : texts) {
    prompts.push_back(flags.chars
                          ? Characters(text)
                          : tokenizer->Encode(text, {.add_special = true, .parse_special = true}));
    if (prompts.back().empty()) {
      return Errorf(ErrorCode::kInvalidArgument, "prompt {} has no tokens: give it some text",
                    prompts.size());
    }
  }
  const TokensToText to_text =
      flags.chars ? TokensToText(CharactersToText) : [&](std::span<const TokenId> tokens) {
        std::string text;
        for (const TokenId token : tokens) text += tokenizer->TokenText(token, true);
        return text;
      };
  KVERN_ASSIGN_OR_RETURN(const PrefixTree tree, MakePrefixTree(prompts, block_tokens));
  if (flags.json) {
    PrintJson(PrefixTreeJson(tree, prompts, to_text));
  } else {
    fmt::print("{}", PrefixTreeText(tree, prompts, to_text));
  }
  return {};
}

}  // namespace

Action DeclareExplainTree(CLI::App& app) {
  const auto flags = std::make_shared<TreeFlags>();
  app.add_option("-p,--prompt", flags->prompts, "A prompt; once for each, in their order")
      ->allow_extra_args(false);
  app.add_option("-f,--file", flags->file,
                 "File with one prompt a line, or a JSON list of them; - is standard input");
  app.add_option("-m,--model", flags->model,
                 "Model file whose tokenizer splits them (default: the fetched model)");
  app.add_flag("--chars", flags->chars, "No model: each character is a token");
  app.add_option("--block-tokens", flags->block_tokens,
                 "Tokens of a block (default: 16, with --chars 4)");
  app.add_flag("--json", flags->json, "Print JSON");
  return [flags] { return Explain(*flags); };
}

}  // namespace kvern::cli
