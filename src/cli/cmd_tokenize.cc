// kvern tokenize: the tokens of a text, one a line, or their ids.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/default_model.h"
#include "cli/input_text.h"
#include "cli/json_output.h"
#include "model/gguf.h"
#include "model/vocab_loader.h"
#include "text/tokenizer.h"

namespace kvern::cli {
namespace {

struct TokenizeFlags {
  std::string model;
  InputText input;
  bool no_bos = false;
  bool no_parse_special = false;
  bool ids = false;
  bool show_count = false;
  bool json = false;
};

std::vector<uint32_t> Numbers(const std::vector<TokenId>& tokens) {
  std::vector<uint32_t> numbers;
  numbers.reserve(tokens.size());
  for (const TokenId token : tokens) numbers.push_back(static_cast<uint32_t>(token));
  return numbers;
}

void Print(const TokenizeFlags& flags, const text::Tokenizer& tokenizer,
           const std::vector<TokenId>& tokens) {
  if (flags.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const TokenId token : tokens) {
      list.push_back({{"id", static_cast<uint32_t>(token)},
                      {"text", tokenizer.TokenText(token, /*render_special=*/true)}});
    }
    PrintJson({{"count", tokens.size()}, {"tokens", list}});
    return;
  }
  if (flags.ids) {
    fmt::print("[{}]\n", fmt::join(Numbers(tokens), ", "));
  } else {
    for (const TokenId token : tokens) {
      fmt::print("{:6} -> '{}'\n", static_cast<uint32_t>(token),
                 tokenizer.TokenText(token, /*render_special=*/true));
    }
  }
  if (flags.show_count) fmt::print("Total number of tokens: {}\n", tokens.size());
}

Status Tokenize(const TokenizeFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const std::string text, ReadInputText(flags.input));
  KVERN_ASSIGN_OR_RETURN(const std::string path, FindModel(flags.model));
  KVERN_ASSIGN_OR_RETURN(const model::Gguf gguf, model::Gguf::Open(path));
  KVERN_ASSIGN_OR_RETURN(const auto tokenizer, model::LoadTokenizer(gguf));
  Print(flags, *tokenizer,
        tokenizer->Encode(
            text, {.add_special = !flags.no_bos, .parse_special = !flags.no_parse_special}));
  return {};
}

}  // namespace

Action DeclareTokenize(CLI::App& app) {
  const auto flags = std::make_shared<TokenizeFlags>();
  app.add_option("-m,--model", flags->model, "Model file (default: the fetched model)");
  app.add_option("-p,--prompt", flags->input.prompt, "The text (default: standard input)");
  app.add_option("-f,--file", flags->input.file, "File with the text; - is standard input");
  app.add_flag("--no-bos", flags->no_bos, "Do not add what the model wants at begin and end");
  app.add_flag("--no-parse-special", flags->no_parse_special,
               "Treat the names of special tokens as text");
  app.add_flag("--ids", flags->ids, "Print only the ids, as a list");
  app.add_flag("--show-count", flags->show_count, "Print the number of tokens, too");
  app.add_flag("--json", flags->json, "Print JSON");
  return [flags] { return Tokenize(*flags); };
}

}  // namespace kvern::cli
