#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace kvern {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return Errorf(ErrorCode::kInvalidArgument, "{} is odd: pass an even number", x);
  return x / 2;
}

Result<int> Quarter(int x) {
  KVERN_ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

Status IsDivisibleByFour(int x) {
  KVERN_RETURN_IF_ERROR(Quarter(x));
  return {};
}

TEST(Result, CarriesAValueOrAnError) {
  EXPECT_EQ(*Quarter(12), 3);
  ASSERT_FALSE(Quarter(6).ok());
  EXPECT_EQ(Quarter(6).error().message, "3 is odd: pass an even number");
  EXPECT_TRUE(IsDivisibleByFour(8).ok());
  EXPECT_EQ(IsDivisibleByFour(7).error().code, ErrorCode::kInvalidArgument);
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> owned = std::move(result).value();
  EXPECT_EQ(*owned, 7);
}

TEST(ResultDeathTest, ReadingTheWrongSideAborts) {
  EXPECT_DEATH((void)Half(3).value(), "a Result was asked for what it does not hold");
  EXPECT_DEATH((void)Half(4).error(), "a Result was asked for what it does not hold");
}

}  // namespace
}  // namespace kvern
