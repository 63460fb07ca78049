// The counterpart of tokenize_lines.cc with llama.cpp's tokenizer: the same arguments, the same
// records, the same output. tokenizer_peer.py compiles it against a llama.cpp build.
//
// A text that llama.cpp refuses with an exception prints "refused".
#include <llama.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

std::string TokenText(const llama_vocab* vocab, llama_token id, bool special) {
  std::string text(16, '\0');
  int32_t length = 0;
  while ((length = llama_token_to_piece(vocab, id, text.data(), static_cast<int32_t>(text.size()),
                                        /*lstrip=*/0, special)) < 0) {
    text.resize(static_cast<size_t>(-length));
  }
  text.resize(static_cast<size_t>(length));
  return text;
}

void PrintVocab(const llama_vocab* vocab) {
  for (llama_token id = 0; id < llama_vocab_n_tokens(vocab); ++id) {
    const std::string bytes = TokenText(vocab, id, true);
    for (const char c : bytes) std::printf("%02x", static_cast<uint8_t>(c));
    const bool is_hidden = !bytes.empty() && TokenText(vocab, id, false).empty();
    std::printf(" %d %d\n", llama_vocab_is_eog(vocab, id), is_hidden);
  }
}

void PrintIds(const llama_vocab* vocab) {
  uint8_t header[5];
  std::vector<llama_token> ids;
  while (std::fread(header, 1, sizeof(header), stdin) == sizeof(header)) {
    const uint32_t length = header[1] | uint32_t{header[2]} << 8 | uint32_t{header[3]} << 16 |
                            uint32_t{header[4]} << 24;
    std::string text(length, '\0');
    if (std::fread(text.data(), 1, length, stdin) != length) return;
    ids.resize(length + 8);
    try {
      const int32_t count = llama_tokenize(vocab, text.data(), static_cast<int32_t>(length),
                                           ids.data(), static_cast<int32_t>(ids.size()),
                                           (header[0] & 1) != 0, (header[0] & 2) != 0);
      for (int32_t i = 0; i < count; ++i) std::printf(i == 0 ? "%d" : " %d", ids[i]);
    } catch (const std::exception&) {
      std::printf("refused");
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[1], params);
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  if (argc > 2) {
    PrintVocab(vocab);
  } else {
    PrintIds(vocab);
  }
  llama_model_free(model);
  return 0;
}
