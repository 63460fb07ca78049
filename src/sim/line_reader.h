// LineReader: the lines of a text from outside, and errors that name the one just read.
//
// The text and its name must outlive the reader. Not thread-safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvern::sim {

class LineReader {
 public:
  // `name` is how errors call the text: a path.
  LineReader(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  // The next line that is not empty, without its end (\n or \r\n).
  std::optional<std::string_view> Next();

  // kCorrupt: "NAME:LINE: what".
  Error Wrong(const std::string& what) const;

 private:
  std::string_view rest_;
  const std::string& name_;
  size_t line_number_ = 0;
};

}  // namespace kvern::sim
