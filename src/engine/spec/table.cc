#include "engine/spec/table.h"

#include <utility>

#include "engine/spec/ngram.h"

namespace kvern::engine {
namespace {

using MadeProposer = Result<std::unique_ptr<Proposer>>;

MadeProposer MakeNone(const SpeculationOptions&, const ProposerParts&) {
  return std::unique_ptr<Proposer>();
}

MadeProposer MakeNgram(const SpeculationOptions&, const ProposerParts&) {
  return MakeNgramProposer();
}

MadeProposer MakeDraft(const SpeculationOptions& options, const ProposerParts& parts) {
  if (options.draft_model.empty()) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "speculation.draft_model: the proposer 'draft' needs the path of a GGUF");
  }
  if (!parts.open_draft) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "speculation.proposer: this engine opens no draft models: use none or ngram");
  }
  KVERN_ASSIGN_OR_RETURN(DraftModel draft, parts.open_draft(options.draft_model));
  auto proposer = MakeDraftProposer(std::move(draft), parts.target);
  if (proposer.ok()) return proposer;
  return Errorf(proposer.error().code, "speculation.draft_model: {}: {}", options.draft_model,
                proposer.error().message);
}

constexpr ProposerRow kProposers[] = {
    {.name = "none", .help = "one token a step (default)", .make = MakeNone},
    {.name = "ngram",
     .help = "as the text went on after the same tokens before; for answers that repeat",
     .make = MakeNgram},
    {.name = "draft", .help = "as a smaller model of the same vocabulary says", .make = MakeDraft},
};

}  // namespace

std::span<const ProposerRow> Proposers() { return kProposers; }

Result<std::unique_ptr<Proposer>> MakeProposer(const SpeculationOptions& options,
                                               const ProposerParts& parts) {
  std::string names;
  for (const ProposerRow& row : kProposers) {
    if (row.name == options.proposer) return row.make(options, parts);
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return Errorf(ErrorCode::kInvalidArgument, "speculation.proposer: unknown '{}': use one of {}",
                options.proposer, names);
}

}  // namespace kvern::engine
