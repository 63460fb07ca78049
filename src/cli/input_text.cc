#include "cli/input_text.h"

#include <cstdio>

#include "base/mapped_file.h"

namespace kvern::cli {
namespace {

Result<std::string> ReadStandardInput() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, size);
  }
  if (std::ferror(stdin) != 0) return Errorf(ErrorCode::kIo, "standard input: cannot read");
  return text;
}

}  // namespace

Result<std::string> ReadInputText(const InputText& input) {
  if (input.prompt && !input.file.empty()) {
    return Errorf(ErrorCode::kInvalidArgument, "-p and -f both give a text: use one of them");
  }
  if (input.prompt) return *input.prompt;
  if (input.file.empty() || input.file == "-") return ReadStandardInput();
  return ReadTextFile(input.file);
}

}  // namespace kvern::cli
