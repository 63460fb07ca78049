// kvern sim: the production KV library on recorded or made-up requests, without a model.
#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "cli/commands.h"

namespace kvern::cli {
namespace {

constexpr Command kSubcommands[] = {
    {.name = "fragmentation",
     .help = "What static, dynamic and paged allocation make of one memory budget",
     .declare = DeclareSimFragmentation},
};

}  // namespace

Action DeclareSim(CLI::App& app) {
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
