// Pre-tokenizers: how byte-level BPE cuts text into words before it merges.
//
// A pre-tokenizer is a list of steps; each cuts every piece that the steps before it left. What a
// step matches becomes pieces of its own, and so does what lies between matches. All steps are
// linear in the text. Everything here is immutable: safe from any thread.
//
// To add one, write one row in the table of pre_tokenizer.cc.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvern::text {

// One way of cutting.
struct SplitStep {
  // What the step does, as a regular expression in which \s is White_Space and \p{…} are Unicode
  // categories (text/char_class.h).
  std::string_view pattern;

  // Appends the end of every piece to `ends`, counted from the beginning of `piece`; the last is
  // piece.size(). REQUIRES: piece is not empty.
  void (*split)(std::u32string_view piece, std::vector<size_t>& ends);
};

struct PreTokenizer {
  std::vector<std::string_view> names;  // values of tokenizer.ggml.pre that mean this one
  std::vector<SplitStep> steps;
  bool whole_words = false;  // a word that is a token is taken whole, whatever the merges say
  bool add_bos = false;      // unless the model says otherwise
};

// The table.
std::span<const PreTokenizer> PreTokenizers();

// The row that has this name, or null.
const PreTokenizer* FindPreTokenizer(std::string_view name);

// "gpt-2, phi-2, …": all names, for messages.
std::string PreTokenizerNames();

// The ends of the words of `text`, in code points; the last is text.size(). Nothing for no text.
std::vector<size_t> SplitWords(const PreTokenizer& pre_tokenizer, std::u32string_view text);

}  // namespace kvern::text
