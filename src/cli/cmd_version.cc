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

namespace kvern::cli {
namespace {

struct VersionFlags {
  bool json = false;
};

Status Version(const VersionFlags& flags) {
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
  return [flags] { return Version(*flags); };
}

}  // namespace kvern::cli
