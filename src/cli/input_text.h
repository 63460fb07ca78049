// The text that a command works on: from -p, from -f, or from standard input.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace kvern::cli {

struct InputText {
  std::optional<std::string> prompt;  // -p
  std::string file;                   // -f; "-" is standard input
};

// Whether a flag says where the text is.
inline bool IsGiven(const InputText& input) { return input.prompt || !input.file.empty(); }

// `prompt`, or the file's content, or else all of standard input.
// Errors: kInvalidArgument where both flags are given; kNotFound and kIo name the file.
Result<std::string> ReadInputText(const InputText& input);

}  // namespace kvern::cli
