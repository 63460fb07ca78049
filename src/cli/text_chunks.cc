#include "cli/text_chunks.h"

namespace kvern::cli {

std::vector<std::vector<TokenId>> CutText(const text::Tokenizer& tokenizer, const std::string& text,
                                          size_t chunk) {
  const auto tokens = tokenizer.Encode(text, {.add_special = true, .parse_special = false});
  std::vector<std::vector<TokenId>> chunks;
  for (size_t first = 0; first + chunk <= tokens.size(); first += chunk) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(first);
    chunks.emplace_back(begin, begin + static_cast<ptrdiff_t>(chunk));
    if (tokenizer.adds_bos() && tokenizer.bos()) chunks.back()[0] = *tokenizer.bos();
  }
  if (chunks.empty() && tokens.size() > 1) chunks.push_back(tokens);
  return chunks;
}

}  // namespace kvern::cli
