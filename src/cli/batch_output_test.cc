#include "cli/batch_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cli/batch_test_util.h"

namespace kvern::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kInput = "{\"custom_id\": \"a\"}\n\n{\"custom_id\": \"b\"}\r\nbroken\n";

std::string Line(const std::string& id) {
  return "{\"id\":\"batch_req_1\",\"custom_id\":\"" + id + "\",\"response\":{},\"error\":null}";
}

class BatchFilesTest : public testing::Test {
 protected:
  BatchFilesTest() { folder_.Write("in", kInput); }

  Result<BatchOutput> Open(const std::string& name = "out") {
    auto index = IndexBatch(folder_.Path("in"));
    if (!index.ok()) return index.error();
    return BatchOutput::Open(folder_.Path(name), folder_.Path("in"), *index, clock_);
  }

  std::string ErrorOf(const std::string& content) {
    folder_.Write("out", content);
    const auto output = Open();
    EXPECT_EQ(folder_.Read("out"), content);  // nobody's file is changed
    return output.ok() ? "none" : output.error().message;
  }

  ScratchFolder folder_;
  StoppedClock clock_;
};

TEST_F(BatchFilesTest, AnIndexKnowsEachLine) {
  const auto index = IndexBatch(folder_.Path("in"));
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->num_requests(), 3u);
  EXPECT_EQ(index->line_of_id.at("b"), 3u);
  EXPECT_TRUE(index->lines_without_id.contains(4));
}

TEST_F(BatchFilesTest, TwoLinesOfOneIdAreRefused) {
  folder_.Write("in", "{\"custom_id\": \"a\"}\n{\"custom_id\": \"b\"}\n{\"custom_id\": \"a\"}\n");
  const auto index = IndexBatch(folder_.Path("in"));
  ASSERT_FALSE(index.ok());
  EXPECT_EQ(index.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(index.error().message, HasSubstr("line 3: custom_id 'a' is that of line 1 too"));
}

TEST_F(BatchFilesTest, AnInputMustBeAFile) {
  EXPECT_EQ(IndexBatch(folder_.Path("none")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(IndexBatch("/dev/null").error().code, ErrorCode::kNotFound);
}

TEST_F(BatchFilesTest, AddsLinesAndFindsThemAgain) {
  {
    auto output = Open();
    ASSERT_TRUE(output.ok());
    EXPECT_FALSE(output->IsAnswered(1, "a"));
    ASSERT_TRUE(output->Append(Line("a")).ok());
  }
  const auto output = Open();
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->num_answered(), 1u);
  EXPECT_TRUE(output->IsAnswered(1, "a"));
  EXPECT_FALSE(output->IsAnswered(3, "b"));
  EXPECT_EQ(folder_.Read("out"), Line("a") + "\n");
}

TEST_F(BatchFilesTest, AnIncompleteLineIsDropped) {
  const std::string whole = Line("a") + "\n";
  for (size_t length = 0; length <= Line("b").size(); ++length) {
    folder_.Write("out", whole + Line("b").substr(0, length));
    const auto output = Open();
    ASSERT_TRUE(output.ok()) << output.error().message;
    EXPECT_EQ(output->num_dropped_bytes(), length);
    EXPECT_EQ(folder_.Read("out"), whole);
  }
  folder_.Write("out", whole + std::string(20, '\0'));  // what a loss of power may leave
  EXPECT_TRUE(Open().ok());
  EXPECT_EQ(folder_.Read("out"), whole);
}

TEST_F(BatchFilesTest, AMalformedLineIsAnsweredByItsNumber) {
  folder_.Write("out", "{\"custom_id\":null,\"response\":null,\"error\":{\"line\":4}}\n");
  const auto output = Open();
  ASSERT_TRUE(output.ok());
  EXPECT_TRUE(output->IsAnswered(4, {}));
  EXPECT_FALSE(output->IsAnswered(5, {}));
}

TEST_F(BatchFilesTest, WhatIsNoOutputOfThisInputIsLeftAlone) {
  EXPECT_THAT(ErrorOf(Line("c") + "\n"), HasSubstr("line 1: custom_id 'c' is not in "));
  EXPECT_THAT(ErrorOf("my notes\n"), HasSubstr("line 1 is not of a batch's output"));
  EXPECT_THAT(ErrorOf("{\"my\": \"settings\"}"), HasSubstr("line 1 is not of a batch's output"));
  EXPECT_THAT(ErrorOf(Line("a") + "\nmy notes"), HasSubstr("line 2 is not of a batch's output"));
  EXPECT_THAT(Open("in").error().message, HasSubstr("is the input too"));
  const auto device = BatchOutput::Open("/dev/null", folder_.Path("in"), {}, clock_);
  ASSERT_FALSE(device.ok());
  EXPECT_THAT(device.error().message, HasSubstr("is no file that a batch could go on from"));
}

TEST_F(BatchFilesTest, OneProcessAtATimeWrites) {
  const auto first = Open();
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(Open().error().message, EndsWith("another process writes it: wait for its end"));
}

}  // namespace
}  // namespace kvern::cli
