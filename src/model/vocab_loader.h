// The tokenizer of a model file: GGUF metadata tokenizer.* as text::Vocab.
#pragma once

#include <memory>

#include "base/result.h"
#include "model/gguf.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace kvern::model {

// Errors: kUnsupported (a kind of tokenizer that Kvern does not have), kNotFound, kCorrupt; the
// message names the file and the metadata key.
Result<text::Vocab> LoadVocab(const Gguf& gguf);

// LoadVocab and Tokenizer::Create, with the same kind of errors.
Result<std::unique_ptr<text::Tokenizer>> LoadTokenizer(const Gguf& gguf);

}  // namespace kvern::model
