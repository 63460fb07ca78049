// kvern version: what this program is, and on what it runs.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "compute/isa.h"
#include "compute/numerics_version.h"
#include "engine/exec/golden.h"

namespace kvern::cli {
namespace {

struct VersionFlags {
  bool json = false;
  bool check = false;
};

// Computes the golden logits on every instruction set of this CPU. The error is that of the first
// that gives others.
Status Check(const VersionFlags& flags) {
  Status result;
  nlohmann::ordered_json outcomes;
  for (const compute::Isa& isa : compute::Isas()) {
    if (!isa.supported()) continue;
    const Status status = engine::CheckGoldenLogits(isa);
    const char* outcome = status.ok() ? "ok" : "differs";
    outcomes[std::string(isa.name)] = outcome;
    if (!flags.json) fmt::print("golden logits on {}: {}\n", isa.name, outcome);
    if (result.ok()) result = status;
  }
  if (flags.json) {
    PrintJson({{"numerics_version", compute::kNumericsVersion}, {"golden_logits", outcomes}});
  }
  return result;
}

Status Version(const VersionFlags& flags) {
  if (flags.check) return Check(flags);
  std::vector<std::string> supported;
  for (const compute::Isa& isa : compute::Isas()) {
    if (isa.supported()) supported.emplace_back(isa.name);
  }
  if (flags.json) {
    PrintJson({{"version", KVERN_VERSION},
               {"numerics_version", compute::kNumericsVersion},
               {"isa", supported.back()},
               {"isas", supported},
               {"compiler", KVERN_COMPILER}});
    return {};
  }
  fmt::print("kvern {}\nnumerics version {}\ninstruction set {}\ncompiler {}\n", KVERN_VERSION,
             compute::kNumericsVersion, supported.back(), KVERN_COMPILER);
  return {};
}

}  // namespace

Action DeclareVersion(CLI::App& app) {
  const auto flags = std::make_shared<VersionFlags>();
  app.add_flag("--json", flags->json, "Print JSON");
  app.add_flag("--check", flags->check,
               "Compute the golden logits on this CPU; fail if a bit differs");
  return [flags] { return Version(*flags); };
}

}  // namespace kvern::cli
