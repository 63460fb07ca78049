// kvern explain example: attention and its cache on numbers that can be checked by hand.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/explain_example.h"
#include "cli/json_output.h"
#include "compute/isa.h"

namespace kvern::cli {
namespace {

struct ExplainFlags {
  std::string k_dtype = "f32";
  std::string v_dtype = "f32";
  std::string isa = "auto";
  bool json = false;
};

Status ExplainExample(const ExplainFlags& flags) {
  KVERN_ASSIGN_OR_RETURN(const compute::KvDtype k_dtype, ParseKvDtype("-ctk", flags.k_dtype));
  KVERN_ASSIGN_OR_RETURN(const compute::KvDtype v_dtype, ParseKvDtype("-ctv", flags.v_dtype));
  KVERN_ASSIGN_OR_RETURN(const compute::Isa* isa, compute::SelectIsa(flags.isa));
  KVERN_ASSIGN_OR_RETURN(const auto example, engine::ComputeWorkedExample(*isa, k_dtype, v_dtype));
  if (flags.json) {
    PrintJson(WorkedExampleJson(example));
  } else {
    fmt::print("{}", WorkedExampleText(example));
  }
  return {};
}

}  // namespace

Action DeclareExplainExample(CLI::App& app) {
  const auto flags = std::make_shared<ExplainFlags>();
  app.add_option("--cache-type-k", flags->k_dtype, "Type of K in the cache (short: -ctk)")
      ->capture_default_str();
  app.add_option("--cache-type-v", flags->v_dtype, "Type of V in the cache (short: -ctv)")
      ->capture_default_str();
  app.add_option("--isa", flags->isa, "Instruction set of the kernels; the text is the same")
      ->capture_default_str();
  app.add_flag("--json", flags->json, "Print JSON, with every number unrounded");
  return [flags] { return ExplainExample(*flags); };
}

}  // namespace kvern::cli
