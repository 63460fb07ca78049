#include "cli/batch_output.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "cli/batch_lines.h"

namespace kvern::cli {
namespace {

constexpr int64_t kSyncIntervalUs = 1'000'000;
constexpr int kClosed = -1;

Error IoError(const std::string& path, const char* what) {
  return Errorf(ErrorCode::kIo, "{}: cannot {}: {}", path, what, std::strerror(errno));
}

Error NotAnOutput(const std::string& path, size_t number) {
  return Errorf(ErrorCode::kInvalidArgument,
                "{}: line {} is not of a batch's output: name another file, or delete it", path,
                number);
}

// Text without a newline that a kill, or a loss of power, leaves at the end: anything else is
// somebody's, and not ours to drop.
bool MayBeIncomplete(std::string_view text) {
  const std::string_view begin = kOutputLineBegin.substr(0, text.size());
  return text.substr(0, begin.size()) == begin ||
         text.find_first_not_of('\0') == std::string_view::npos;
}

bool IsSameFile(const struct stat& a, const std::string& path) {
  struct stat b {};
  return stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

BatchOutput::BatchOutput(std::string path, int file, const Clock& clock)
    : path_(std::move(path)), file_(file), clock_(clock), synced_us_(clock.now_us()) {}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, kClosed)),
      clock_(other.clock_),
      size_(other.size_),
      synced_us_(other.synced_us_),
      num_dropped_bytes_(other.num_dropped_bytes_),
      ids_(std::move(other.ids_)),
      lines_(std::move(other.lines_)) {}

BatchOutput::~BatchOutput() {
  if (file_ != kClosed) close(file_);
}

Result<BatchOutput> BatchOutput::Open(const std::string& path, const std::string& input_path,
                                      const BatchIndex& index, const Clock& clock) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return IoError(path, "be opened");
  BatchOutput output(path, file, clock);
  struct stat info {};
  if (fstat(file, &info) != 0) return IoError(path, "be read");
  if (!S_ISREG(info.st_mode)) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{}: is no file that a batch could go on from: name one", path);
  }
  if (IsSameFile(info, input_path)) {
    return Errorf(ErrorCode::kInvalidArgument, "{}: is the input too: name another output", path);
  }
  if (flock(file, LOCK_EX | LOCK_NB) != 0) {
    return Errorf(ErrorCode::kIo, "{}: another process writes it: wait for its end", path);
  }
  output.size_ = info.st_size;
  KVERN_RETURN_IF_ERROR(output.ReadAndRepair(input_path, index));
  return output;
}

Status BatchOutput::ReadAndRepair(const std::string& input_path, const BatchIndex& index) {
  std::ifstream lines(path_, std::ios::binary);
  size_t number = 0;
  int64_t keep = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!lines.eof()) {
      KVERN_RETURN_IF_ERROR(Remember(number, line, input_path, index));
      keep += static_cast<int64_t>(line.size()) + 1;
    } else if (!MayBeIncomplete(line)) {
      return NotAnOutput(path_, number);
    }
  }
  if (lines.bad() || (number == 0 && size_ > 0)) return IoError(path_, "be read");
  if (keep == size_) return {};
  if (ftruncate(file_, keep) != 0) return IoError(path_, "be shortened");
  num_dropped_bytes_ = static_cast<size_t>(size_ - keep);
  size_ = keep;
  return {};
}

Status BatchOutput::Remember(size_t number, std::string_view line, const std::string& input_path,
                             const BatchIndex& index) {
  const auto answered = FindAnswered(line);
  if (!answered) return NotAnOutput(path_, number);
  if (answered->input_line) {
    if (index.lines_without_id.contains(*answered->input_line)) {
      lines_.insert(*answered->input_line);
    }
    return {};
  }
  if (!index.line_of_id.contains(*answered->custom_id)) {
    return Errorf(ErrorCode::kInvalidArgument,
                  "{}: line {}: custom_id '{}' is not in {}: this is the output of another input; "
                  "name another, or delete it",
                  path_, number, *answered->custom_id, input_path);
  }
  ids_.insert(*answered->custom_id);
  return {};
}

bool BatchOutput::IsAnswered(size_t line, const std::optional<std::string>& custom_id) const {
  return custom_id ? ids_.contains(*custom_id) : lines_.contains(line);
}

Status BatchOutput::Append(std::string line) {
  line += '\n';
  const ssize_t written = write(file_, line.data(), line.size());
  if (written != static_cast<ssize_t>(line.size())) {
    const Error error = written < 0 ? IoError(path_, "be written")
                                    : Errorf(ErrorCode::kIo, "{}: the disk is full", path_);
    // Should this fail too, the next Open() does it.
    if (written > 0 && ftruncate(file_, size_) != 0) return error;
    return error;
  }
  size_ += written;
  if (clock_.now_us() - synced_us_ < kSyncIntervalUs) return {};
  return Sync();
}

Status BatchOutput::Sync() {
  if (fdatasync(file_) != 0) return IoError(path_, "be synced");
  synced_us_ = clock_.now_us();
  return {};
}

}  // namespace kvern::cli
