// kvern sim: the production KV library on recorded or made-up requests, without a model.
#include "cli/commands.h"

namespace kvern::cli {
namespace {

constexpr Command kSimSubcommands[] = {
    {.name = "fragmentation",
     .help = "What static, dynamic and paged allocation make of one memory budget",
     .declare = DeclareSimFragmentation},
};

}  // namespace

Action DeclareSim(CLI::App& app) { return DeclareSubcommands(app, kSimSubcommands); }

}  // namespace kvern::cli
