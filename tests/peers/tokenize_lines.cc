// tokenize_lines MODEL [--vocab]: tokenizes texts from stdin, for comparison with other tokenizers.
//
// A record on stdin is: flags (one byte: 1 add_special, 2 parse_special), length (4 bytes, little-
// endian), that many bytes of text. For each, a line of token ids. With --vocab it reads nothing
// and prints a line per token: its bytes in hexadecimal (special tokens rendered), whether it ends
// a generation, and whether it is hidden when special tokens are not rendered.
#include <fmt/core.h>

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>

#include "model/gguf.h"
#include "model/vocab_loader.h"
#include "text/tokenizer.h"

namespace kvern {
namespace {

struct Record {
  text::EncodeOptions options;
  std::string text;
};

std::optional<Record> ReadRecord(std::FILE* in) {
  uint8_t header[5];
  if (std::fread(header, 1, sizeof(header), in) != sizeof(header)) return std::nullopt;
  const uint32_t length =
      header[1] | uint32_t{header[2]} << 8 | uint32_t{header[3]} << 16 | uint32_t{header[4]} << 24;
  Record record{{(header[0] & 1) != 0, (header[0] & 2) != 0}, std::string(length, '\0')};
  if (std::fread(record.text.data(), 1, length, in) != length) return std::nullopt;
  return record;
}

void PrintIds(const text::Tokenizer& tokenizer) {
  while (const auto record = ReadRecord(stdin)) {
    std::string line;
    for (const TokenId id : tokenizer.Encode(record->text, record->options)) {
      fmt::format_to(std::back_inserter(line), "{} ", static_cast<uint32_t>(id));
    }
    if (!line.empty()) line.pop_back();
    std::puts(line.c_str());
  }
}

void PrintVocab(const text::Tokenizer& tokenizer) {
  for (size_t i = 0; i < tokenizer.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    std::string line;
    const std::string bytes = tokenizer.TokenText(id, /*render_special=*/true);
    for (const char c : bytes) fmt::format_to(std::back_inserter(line), "{:02x}", uint8_t(c));
    const bool is_hidden =
        !bytes.empty() && tokenizer.TokenText(id, /*render_special=*/false).empty();
    fmt::print("{} {:d} {:d}\n", line, tokenizer.IsEndOfGeneration(id), is_hidden);
  }
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: tokenize_lines MODEL [--vocab]\n", stderr);
    return 2;
  }
  const auto gguf = model::Gguf::Open(argv[1]);
  if (!gguf.ok()) {
    fmt::print(stderr, "{}\n", gguf.error().message);
    return 1;
  }
  const auto tokenizer = model::LoadTokenizer(*gguf);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 1;
  }
  if (argc > 2) {
    PrintVocab(**tokenizer);
  } else {
    PrintIds(**tokenizer);
  }
  return 0;
}

}  // namespace
}  // namespace kvern

int main(int argc, char** argv) { return kvern::Main(argc, argv); }
