#include "cli/batch_test_util.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/mapped_file.h"

namespace kvern::cli {

ScratchFolder::ScratchFolder() {
  std::string name = testing::TempDir() + "/kvern-batch-XXXXXX";
  CHECK(mkdtemp(name.data()) != nullptr);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ScratchFolder::Write(const std::string& name, const std::string& text) const {
  CHECK(WriteTextFile(Path(name), text).ok());
}

std::string ScratchFolder::Read(const std::string& name) const {
  auto text = ReadTextFile(Path(name));
  CHECK(text.ok());
  return std::move(text).value();
}

}  // namespace kvern::cli
