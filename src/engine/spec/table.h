// The proposers of speculation: one row each in a visible table, one file each in engine/spec/.
//
// To add one, write its file, give it a row in table.cc: the tests of engine/spec run over every
// row.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/proposer.h"
#include "engine/spec/draft.h"
#include "kvern/engine.h"

namespace kvern::engine {

// What a proposer may be made from, beside the options.
struct ProposerParts {
  TargetModel target;
  // Opens the model at a path as a draft. Empty where there are no draft models, as in simulations.
  std::function<Result<DraftModel>(const std::string& path)> open_draft = {};
};

struct ProposerRow {
  std::string_view name;  // as in SpeculationOptions::proposer
  std::string_view help;  // one line
  // Null: no speculation.
  Result<std::unique_ptr<Proposer>> (*make)(const SpeculationOptions& options,
                                            const ProposerParts& parts);
};

// The first row is the default.
std::span<const ProposerRow> Proposers();

// Null for the proposer "none". Errors: kInvalidArgument, naming the option; those of open_draft.
Result<std::unique_ptr<Proposer>> MakeProposer(const SpeculationOptions& options,
                                               const ProposerParts& parts);

}  // namespace kvern::engine
