#include "cli/commands.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <utility>
#include <vector>

namespace kvern::cli {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr Command kCommands[] = {
    {.name = "run", .help = "Answer a prompt, or talk", .declare = DeclareRun},
    {.name = "batch",
     .help = "Answer a file of requests, and go on where it stopped",
     .declare = DeclareBatch},
    {.name = "serve", .help = "Serve a model over HTTP", .declare = DeclareServe},
    {.name = "score", .help = "Measure how well a model predicts a text", .declare = DeclareScore},
    {.name = "tokenize", .help = "Show the tokens of a text", .declare = DeclareTokenize},
    {.name = "demo",
     .help = "Measure what the KV cache does, here and now",
     .declare = DeclareDemo},
    {.name = "bench", .help = "Measure speed and memory on this machine", .declare = DeclareBench},
    {.name = "sim",
     .help = "Replay traces of requests on the KV library, without a model",
     .declare = DeclareSim},
    {.name = "explain",
     .help = "Show how attention and the KV cache work, on examples",
     .declare = DeclareExplain},
    {.name = "verify",
     .help = "Compute the answer of a receipt again, and compare",
     .declare = DeclareVerify},
    {.name = "inspect", .help = "Show what a model file holds", .declare = DeclareInspect},
    {.name = "version",
     .help = "Show version, numerics version and CPU",
     .declare = DeclareVersion},
};

// Flags of several letters behind one dash, as llama.cpp spells them, which CLI11 cannot parse.
constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
    {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},
    {"-sys", "--system-prompt"},
    {"-cnv", "--conversation"},
    {"-no-cnv", "--no-conversation"},
    {"-md", "--model-draft"},
    {"-np", "--parallel"},
    {"-pg", "--prompt-gen"},
    {"-npp", "--n-pp"},
    {"-ntg", "--n-tg"},
    {"-npl", "--n-pl"},
    {"-pps", "--shared-prefix"},
    {"-ub", "--ubatch-size"},
    {"-ngl", "--n-gpu-layers"},
    {"-cb", "--cont-batching"},
    {"-nocb", "--no-cont-batching"},
    {"-fa", "--flash-attn"},
    {"-kvu", "--kv-unified"},
    {"-no-kvu", "--no-kv-unified"},
    {"-tb", "--threads-batch"},
    {"-cram", "--cache-ram"},
};

std::vector<std::string> InReverse(std::span<const std::string> arguments) {
  std::vector<std::string> result(arguments.rbegin(), arguments.rend());
  for (std::string& argument : result) {
    for (const auto& [spelling, flag] : kSpellings) {
      if (argument == spelling) argument = flag;
    }
  }
  return result;
}

int Fail(const Error& error) {
  fmt::print(stderr, "kvern: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

Status Perform(const Action& action) {
  try {
    KVERN_RETURN_IF_ERROR(action());
  } catch (const std::bad_alloc&) {
    return Errorf(ErrorCode::kOutOfMemory, "out of memory: use a smaller model or context (-c)");
  } catch (const std::exception& exception) {
    return Errorf(ErrorCode::kIo, "{}", exception.what());
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return Errorf(ErrorCode::kIo, "standard output: cannot write: is the disk full?");
  }
  return {};
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

Action DeclareSubcommands(CLI::App& app, std::span<const Command> subcommands) {
  std::vector<std::pair<const CLI::App*, Action>> declared;
  for (const Command& command : subcommands) {
    CLI::App* const subcommand =
        app.add_subcommand(std::string(command.name), std::string(command.help));
    declared.emplace_back(subcommand, command.declare(*subcommand));
  }
  app.require_subcommand(1);
  return [declared]() -> Status {
    for (const auto& [subcommand, action] : declared) {
      if (subcommand->parsed()) return action();
    }
    return {};
  };
}

int RunCommandLine(std::span<const std::string> arguments) {
  CLI::App app("Kvern runs language models on the CPU, from a paged KV cache.", "kvern");
  app.require_subcommand(0, 1);
  app.get_formatter()->column_width(34);
  std::vector<std::pair<CLI::App*, Action>> actions;
  for (const Command& command : Commands()) {
    CLI::App* const subcommand =
        app.add_subcommand(std::string(command.name), std::string(command.help));
    actions.emplace_back(subcommand, command.declare(*subcommand));
  }

  try {
    app.parse(InReverse(arguments));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    const std::string name = parsed.empty() ? "" : parsed.front()->get_name() + " ";
    return Fail(
        Errorf(ErrorCode::kInvalidArgument, "{} (see: kvern {}--help)", error.what(), name));
  }

  for (const auto& [subcommand, action] : actions) {
    if (!subcommand->parsed()) continue;
    const Status status = Perform(action);
    return status.ok() ? 0 : Fail(status.error());
  }
  return Fail(Errorf(ErrorCode::kInvalidArgument, "name a command (see: kvern --help)"));
}

}  // namespace kvern::cli
