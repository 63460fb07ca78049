// Commands: what `kvern` can do. One row of Commands() and one file cmd_<name>.cc for each.
//
// A command declares its flags and returns what to do once they are parsed. It writes results to
// standard output, everything else to standard error, and returns its error: a single line that
// says what to do. The process exits with 0 when all went well, 2 when the command line must be
// changed (flags that cannot be parsed, kInvalidArgument), 1 for any other error.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace CLI {
class App;
}

namespace kvern::cli {

// The command line must be changed.
inline Error FlagError(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

using Action = std::function<Status()>;

struct Command {
  std::string_view name;
  std::string_view help;  // one line
  Action (*declare)(CLI::App& app);
};

// In the order of --help.
std::span<const Command> Commands();

// A command that is one of several subcommands: exactly one must be given.
Action DeclareSubcommands(CLI::App& app, std::span<const Command> subcommands);

// Parses and runs a whole command line, without the program's name. Returns the exit code.
int RunCommandLine(std::span<const std::string> arguments);

Action DeclareBatch(CLI::App& app);
Action DeclareBench(CLI::App& app);
Action DeclareDemo(CLI::App& app);
Action DeclareExplain(CLI::App& app);
Action DeclareInspect(CLI::App& app);
Action DeclareRun(CLI::App& app);
Action DeclareScore(CLI::App& app);
Action DeclareServe(CLI::App& app);
Action DeclareSim(CLI::App& app);
Action DeclareTokenize(CLI::App& app);
Action DeclareVerify(CLI::App& app);
Action DeclareVersion(CLI::App& app);

// The subcommands of explain, one cmd_explain_<name>.cc each.
Action DeclareExplainExample(CLI::App& app);
Action DeclareExplainTree(CLI::App& app);

// The subcommands of sim, one cmd_sim_<name>.cc each.
Action DeclareSimFragmentation(CLI::App& app);

}  // namespace kvern::cli
