// A folder for the files of one test of batches, and a clock that tests move.
#pragma once

#include <filesystem>
#include <string>

#include "base/clock.h"

namespace kvern::cli {

// An empty folder, gone when the object is.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string Path(const std::string& name) const { return (path_ / name).string(); }
  void Write(const std::string& name, const std::string& text) const;
  std::string Read(const std::string& name) const;

 private:
  std::filesystem::path path_;
};

class StoppedClock final : public Clock {
 public:
  int64_t now_us() const override { return 0; }
};

}  // namespace kvern::cli
