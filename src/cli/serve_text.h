// TextMaker: ordinary text of an exact number of tokens, for prompts that nobody has written.
//
// A text is named by a number. The same seed, model and number give the same tokens, and a shorter
// piece of a text is the beginning of a longer one. Texts begin with different words, mostly, so
// that none is the beginning of another by chance. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "kvern/ids.h"

namespace kvern::cli {

class TextMaker {
 public:
  // Tokens of a text; `add_special`: at the beginning of a prompt.
  using Encoder =
      std::function<Result<std::vector<TokenId>>(std::string_view text, bool add_special)>;

  TextMaker(Encoder encode, uint64_t seed) : encode_(std::move(encode)), seed_(seed) {}

  // Keeps what it made, so that asking again costs a copy. Errors: the encoder's.
  Result<std::vector<TokenId>> Make(uint64_t text, size_t num_tokens, bool begins_prompt);

 private:
  struct Made {
    std::vector<TokenId> tokens;
    uint64_t num_paragraphs = 0;
  };

  const Encoder encode_;
  const uint64_t seed_;
  std::unordered_map<uint64_t, Made> made_[2];  // by begins_prompt
};

// The words before encoding: paragraph `index` of a text. Exposed for tests.
std::string MakeParagraph(uint64_t seed, uint64_t text, uint64_t index);

}  // namespace kvern::cli
