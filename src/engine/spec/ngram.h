// Prompt lookup: a text goes on as it did when its last few tokens stood there before.
//
// Costs about a microsecond a sequence and step, and needs no second model; pays where answers
// repeat their prompt or themselves. Keeps a NgramIndex for each sequence.
#pragma once

#include <memory>

#include "engine/proposer.h"

namespace kvern::engine {

std::unique_ptr<Proposer> MakeNgramProposer();

}  // namespace kvern::engine
