#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

namespace kvern {
namespace {

std::string TempPath(const char* name) {
  return testing::TempDir() + name + std::to_string(getpid());
}

TEST(MappedFile, ShowsTheBytesAndSurvivesMoves) {
  const std::string path = TempPath("mapped");
  ASSERT_TRUE(WriteTextFile(path, "kvern").ok());
  auto opened = MappedFile::Open(path);
  ASSERT_TRUE(opened.ok());
  MappedFile moved = std::move(*opened);
  ASSERT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "kvern", 5), 0);
  moved.Discard(0, 5);
  EXPECT_EQ(std::memcmp(moved.bytes().data(), "kvern", 5), 0);
  EXPECT_EQ(*ReadTextFile(path), "kvern");
  unlink(path.c_str());
}

TEST(MappedFile, EmptyFilesAreEmpty) {
  const std::string path = TempPath("empty");
  ASSERT_TRUE(WriteTextFile(path, "").ok());
  EXPECT_TRUE(MappedFile::Open(path)->bytes().empty());
  unlink(path.c_str());
}

TEST(MappedFile, ErrorsNameThePath) {
  const auto missing = MappedFile::Open("/no/such/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().message, "/no/such/file: cannot open: No such file or directory");
  EXPECT_EQ(MappedFile::Open("/").error().message, "/: not a regular file");
  EXPECT_EQ(WriteTextFile("/no/such/file", "x").error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace kvern
