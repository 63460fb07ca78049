// kvern explain: what the insides of Kvern do, on examples small enough to follow.
#include "cli/commands.h"

namespace kvern::cli {
namespace {

constexpr Command kExplainSubcommands[] = {
    {.name = "example",
     .help = "One attention head and its KV cache, step by step",
     .declare = DeclareExplainExample},
    {.name = "tree",
     .help = "The prefix tree of a list of prompts, and what each finds in it",
     .declare = DeclareExplainTree},
};

}  // namespace

Action DeclareExplain(CLI::App& app) { return DeclareSubcommands(app, kExplainSubcommands); }

}  // namespace kvern::cli
