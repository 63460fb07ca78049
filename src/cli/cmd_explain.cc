// kvern explain: what the insides of Kvern do, on examples small enough to follow.
#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace kvern::cli {
namespace {

constexpr Command kSubcommands[] = {
    {.name = "example",
     .help = "One attention head and its KV cache, step by step",
     .declare = DeclareExplainExample},
    {.name = "tree",
     .help = "The prefix tree of a list of prompts, and what each finds in it",
     .declare = DeclareExplainTree},
};

}  // namespace

Action DeclareExplain(CLI::App& app) {
  std::vector<std::pair<CLI::App*, Action>> subcommands;
  for (const Command& command : kSubcommands) {
    CLI::App* const subcommand =
        app.add_subcommand(std::string(command.name), std::string(command.help));
    subcommands.emplace_back(subcommand, command.declare(*subcommand));
  }
  app.require_subcommand(1);
  return [subcommands]() -> Status {
    for (const auto& [subcommand, action] : subcommands) {
      if (subcommand->parsed()) return action();
    }
    return {};
  };
}

}  // namespace kvern::cli
