#include "cli/batch_input.h"

#include <filesystem>
#include <utility>

#include "cli/batch_lines.h"

namespace kvern::cli {
namespace {

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r") == std::string::npos;
}

}  // namespace

Result<BatchReader> BatchReader::Open(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return Errorf(ErrorCode::kNotFound,
                  "{}: no such file: the input is read twice, so it must be one", path);
  }
  BatchReader reader(path);
  if (reader.file_.is_open()) return reader;
  return Errorf(ErrorCode::kIo, "{}: cannot be read: check its permissions", path);
}

bool BatchReader::Next(size_t& number, std::string& text) {
  while (std::getline(file_, text)) {
    ++number_;
    if (IsBlank(text)) continue;
    number = number_;
    return true;
  }
  return false;
}

Status BatchReader::status() const {
  if (!file_.bad()) return {};
  return Errorf(ErrorCode::kIo, "{}: cannot be read after line {}", path_, number_);
}

Result<BatchIndex> IndexBatch(const std::string& path) {
  KVERN_ASSIGN_OR_RETURN(BatchReader reader, BatchReader::Open(path));
  BatchIndex index;
  size_t number = 0;
  for (std::string text; reader.Next(number, text);) {
    const auto id = FindCustomId(text);
    if (!id) {
      index.lines_without_id.insert(number);
      continue;
    }
    const auto [known, is_new] = index.line_of_id.emplace(*id, number);
    if (!is_new) {
      return Errorf(ErrorCode::kInvalidArgument,
                    "{}: line {}: custom_id '{}' is that of line {} too: each must be unique", path,
                    number, *id, known->second);
    }
  }
  KVERN_RETURN_IF_ERROR(reader.status());
  return index;
}

}  // namespace kvern::cli
