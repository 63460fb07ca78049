// Collect(): chunks to whole completions, for whoever reads an answer as it comes.
#pragma once

#include "kvern/engine.h"

namespace kvern {

// `completion` is that of the chunk, so far.
inline void Collect(const Chunk& chunk, Completion& completion) {
  completion.tokens.insert(completion.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  completion.text += chunk.text;
  if (chunk.finish) completion.finish = *chunk.finish;
}

}  // namespace kvern
