#include "server/api/json_body.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvern::server {
namespace {

std::string ErrorOf(std::string_view text) {
  const auto json = ParseJson(text);
  return json.ok() ? "" : json.error().message;
}

TEST(ParseJson, KeepsTheOrderOfMembers) {
  const auto json = ParseJson(R"({"b": 1, "a": {"z": "é", "y": [1.5, null]}})");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(ToJsonLine(*json), R"({"b":1,"a":{"z":"é","y":[1.5,null]}})");
}

TEST(ParseJson, SaysWhereItIsNone) {
  EXPECT_EQ(ErrorOf(R"({"a": })"), "not JSON from byte 7 on");
  EXPECT_EQ(ErrorOf(""), "not JSON from byte 1 on");
  EXPECT_EQ(ErrorOf("{} {}"), "not JSON from byte 4 on");
  EXPECT_EQ(ErrorOf("\"\xff\""), "not JSON from byte 2 on");
  EXPECT_EQ(ErrorOf("[1e999]"), "JSON has a number that no double can hold");
}

TEST(ParseJson, BoundsTheDepth) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(ErrorOf(nested(kMaxJsonDepth)), "");
  EXPECT_EQ(ErrorOf(nested(kMaxJsonDepth + 1)), "JSON is nested more than 100 deep at byte 100");
  EXPECT_NE(ErrorOf(std::string(10'000'000, '[')), "");
  EXPECT_EQ(ErrorOf("\"" + std::string(1000, '[') + "\\\"\""), "");  // brackets of a string
}

TEST(ToJsonLine, IsOneLineOfUtf8) {
  EXPECT_EQ(ToJsonLine({{"text", "a\n\xff"}}), "{\"text\":\"a\\n\uFFFD\"}");
}

}  // namespace
}  // namespace kvern::server
