// What must be so beside equal answers: a common prefix is computed and stored once, to the token
// and the block; and the two checks that never find anything do find what is damaged on purpose.
#pragma once

#include "base/result.h"
#include "engine/exec/one_answer/grid.h"
#include "engine/exec/one_answer/lab.h"

namespace kvern::engine::one_answer {

// 32 requests at once with one prefix of 2,048 tokens. Compares all answers with those of each
// alone, or only the first and the last.
Result<Outcome> CheckSharedPrefix(Lab& lab, Grid& grid, bool compares_all);

// Bits of cached blocks are flipped: a full hit notices (rule K5), and the answer is right.
Result<Outcome> CheckSelfCheckFires(Lab& lab, Grid& grid);

// One sequence's block is damaged before it is published beside an equal one: it is noticed (rule
// K8), and others, then and later, are answered right.
Result<Outcome> CheckTwoAnswersFires(Lab& lab, Grid& grid);

}  // namespace kvern::engine::one_answer
