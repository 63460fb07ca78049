// A model of the same shape and vocabulary whose weights say nothing: the worst draft there is.
#pragma once

#include <string>

#include "base/result.h"

namespace kvern::engine::one_answer {

// Writes a copy of the GGUF at `path` to `twin_path` in which the quants of every quantised tensor
// are random, and their scales what they were; the same each time. Errors: kUnsupported where no
// tensor is of a type that it can do this to; those of reading and writing.
Status WriteRandomTwin(const std::string& path, const std::string& twin_path);

}  // namespace kvern::engine::one_answer
