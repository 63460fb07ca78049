// BatchOutput: the replies of a batch in a file to which lines are only ever added, so that a batch
// that was killed can go on.
//
// A line is added by one write(), so the death of the process leaves whole lines and at most one
// that is incomplete; Open() drops that one, and keeps the others untouched. The file is synced to
// the disk once a second and at the end: what a loss of power can take is the last second.
//
// One process at a time: the file is locked. Not thread-safe; movable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/clock.h"
#include "base/result.h"
#include "cli/batch_input.h"

namespace kvern::cli {

class BatchOutput {
 public:
  // Opens or creates the file, drops an incomplete last line, and reads which requests of the input
  // it answers. Errors: kInvalidArgument for a file that is not the output of this input, kIo;
  // both name the file.
  static Result<BatchOutput> Open(const std::string& path, const std::string& input_path,
                                  const BatchIndex& index, const Clock& clock);

  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  // The request of that line, and of that id if it has one.
  bool IsAnswered(size_t line, const std::optional<std::string>& custom_id) const;
  size_t num_answered() const { return ids_.size() + lines_.size(); }
  size_t num_dropped_bytes() const { return num_dropped_bytes_; }  // of the incomplete line

  // Adds a line, given without newline. Errors: kIo; the file then ends with a whole line still, if
  // the machine lets it.
  Status Append(std::string line);

  // Errors: kIo.
  Status Sync();

 private:
  BatchOutput(std::string path, int file, const Clock& clock);

  Status ReadAndRepair(const std::string& input_path, const BatchIndex& index);
  Status Remember(size_t number, std::string_view line, const std::string& input_path,
                  const BatchIndex& index);

  std::string path_;
  int file_;
  const Clock& clock_;
  int64_t size_ = 0;  // of the file, in bytes
  int64_t synced_us_;
  size_t num_dropped_bytes_ = 0;
  std::unordered_set<std::string> ids_;
  std::unordered_set<size_t> lines_;  // of requests without id
};

}  // namespace kvern::cli
