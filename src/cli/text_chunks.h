// A text as perplexity tools cut it: chunks of equal length, each of which starts afresh.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kvern/ids.h"
#include "text/tokenizer.h"

namespace kvern::cli {

// Chunks of `chunk` tokens, with BOS in place of the first where the model wants one; what is left
// behind the last is dropped. A text that is shorter is one chunk, one of less than two tokens
// none.
std::vector<std::vector<TokenId>> CutText(const text::Tokenizer& tokenizer, const std::string& text,
                                          size_t chunk);

}  // namespace kvern::cli
