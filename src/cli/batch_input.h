// The input of a batch: a file that is read line by line, so that its size does not matter.
#pragma once

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/result.h"

namespace kvern::cli {

// Lines that are not blank. One thread.
class BatchReader {
 public:
  // Errors: kNotFound.
  static Result<BatchReader> Open(const std::string& path);

  // False at the end. `number` counts all lines, from 1.
  bool Next(size_t& number, std::string& text);

  // Errors: kIo, where reading ended early.
  Status status() const;

 private:
  explicit BatchReader(const std::string& path) : path_(path), file_(path, std::ios::binary) {}

  std::string path_;
  std::ifstream file_;
  size_t number_ = 0;
};

// Whom a batch asks for. Memory grows with the ids alone.
struct BatchIndex {
  std::unordered_map<std::string, size_t> line_of_id;
  std::unordered_set<size_t> lines_without_id;

  size_t num_requests() const { return line_of_id.size() + lines_without_id.size(); }
};

// Errors: kNotFound and kIo; kInvalidArgument where two lines have the same custom_id.
Result<BatchIndex> IndexBatch(const std::string& path);

}  // namespace kvern::cli
