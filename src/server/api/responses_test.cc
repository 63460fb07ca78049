#include "server/api/responses.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/api/api_test_util.h"

namespace kvern::server {
namespace {

using Json = nlohmann::ordered_json;

// The field that is wrong with a body.
std::string WrongField(const char* body) {
  const LetterText text;
  const ModelInfo model = {.text = &text, .context = 1000, .fingerprint = "0123"};
  const auto parsed = ParseResponsesRequest(Json::parse(body), model);
  const auto* error = std::get_if<ApiError>(&parsed);
  return error != nullptr ? error->param.value_or("?") : "none";
}

TEST(ParseResponsesRequest, NamesTheFieldOfAnItem) {
  EXPECT_EQ(WrongField(R"({"input": [{"role": "user", "content": "a"}]})"), "none");
  EXPECT_EQ(WrongField(R"({"input": [{"role": 1, "content": "a"}]})"), "input[0].role");
  EXPECT_EQ(WrongField(R"({"input": [{"role": "user"}]})"), "input[0].content");
  EXPECT_EQ(WrongField(R"({"input": [{"type": "function_call", "arguments": {}}]})"),
            "input[0].arguments");
  EXPECT_EQ(WrongField(R"({"input": [{"type": "function_call_output", "output": "a",
                                      "call_id": 1}]})"),
            "input[0].call_id");
}

TEST(ParseResponsesRequest, TheFormatIsText) {
  EXPECT_EQ(WrongField(R"({"input": "a", "text": {"format": {"type": "text"}}})"), "none");
  EXPECT_EQ(WrongField(R"({"input": "a", "text": {"format": null}})"), "none");
  EXPECT_EQ(WrongField(R"({"input": "a", "text": {"format": 1}})"), "text.format");
  EXPECT_EQ(WrongField(R"({"input": "a", "text": {"format": {"type": 1}}})"), "text.format.type");
  EXPECT_EQ(WrongField(R"({"input": "a", "text": {"format": {"type": "json_schema"}}})"),
            "text.format");
}

}  // namespace
}  // namespace kvern::server
