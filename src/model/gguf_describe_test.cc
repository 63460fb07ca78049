#include "model/gguf_describe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "model/gguf_test_util.h"

namespace kvern::model {
namespace {

using testing::HasSubstr;

GgufWriter OddGguf() {
  GgufWriter writer = SmallGguf();
  writer.AddString("c.text", "a\tb\x1b[31m\"\\ \xc4\xa0 \xff \xc2\x85 \xed\xa0\x80")
      .AddString("c.long", std::string(59, 'x') + "\xe2\x82\xac and more")
      .AddArray<uint16_t>("c.many", MetadataKind::kUint16, std::vector<uint16_t>(9, 7))
      .Add("c.nan", MetadataKind::kFloat32, std::numeric_limits<float>::quiet_NaN())
      .AddTensor("odd", 39, {32}, "?");
  return writer;
}

TEST(GgufDescribe, Text) {
  const auto bytes = ExactBytes(OddGguf().Bytes());
  const auto gguf = Gguf::Parse(bytes, "m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  const std::string text = DescribeText(*gguf, {});
  EXPECT_THAT(text, HasSubstr("m.gguf: GGUF version 3, "));
  EXPECT_THAT(text, HasSubstr("metadata: 21 entries\n"
                              "  general.architecture  string            \"llama\"\n"
                              "  a.uint8               uint8             200\n"));
  EXPECT_THAT(text, HasSubstr("  a.float32             float32           1e-05\n"));
  EXPECT_THAT(text, HasSubstr("array of string   3 [\"<s>\", \"\", \"two\\nlines\"]\n"));
  EXPECT_THAT(text, HasSubstr("array of string   0 []\n"));
  EXPECT_THAT(text, HasSubstr("array of uint16   9 [7, 7, 7, 7, 7, 7, 7, 7, ...]\n"));
  EXPECT_THAT(
      text, HasSubstr("\"a\\x09b\\x1b[31m\\\"\\\\ \xc4\xa0 \\xff \\xc2\\x85 \\xed\\xa0\\x80\"\n"));
  EXPECT_THAT(text, HasSubstr("x\xe2\x82\xac\"... (71 bytes)\n"));
  EXPECT_THAT(text,
              HasSubstr("  blk.0.cube           Q8_0             68 bytes  32 x 1 x 1 x 2\n"));
  EXPECT_THAT(text,
              HasSubstr("  odd                  type 39 (unsupported)       unknown bytes  32\n"));
  EXPECT_THAT(text, HasSubstr("  F32    1 tensors, 12 elements, 48 bytes\n"));
  EXPECT_THAT(text,
              HasSubstr("  all    4 tensors, 145 elements, 166 bytes, 9.16 bits per weight\n"));
  EXPECT_THAT(text, testing::Not(HasSubstr("KV cache")));

  const KvCost costs[] = {{"f16", 23040}, {"f32", 46080}};
  EXPECT_THAT(
      DescribeText(*gguf, costs),
      testing::EndsWith("KV cache per token:\n  f16    23040 bytes\n  f32    46080 bytes\n"));
}

TEST(GgufDescribe, Json) {
  const auto bytes = ExactBytes(OddGguf().Bytes());
  const auto gguf = Gguf::Parse(bytes, "m.gguf");
  ASSERT_TRUE(gguf.ok()) << gguf.error().message;
  const KvCost costs[] = {{"f16", 23040}};
  const auto json = nlohmann::json::parse(DescribeJson(*gguf, costs));
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["file_bytes"], bytes.size());
  ASSERT_EQ(json["metadata"].size(), 21u);
  EXPECT_EQ(json["metadata"][5]["key"], "a.uint32");
  EXPECT_EQ(json["metadata"][5]["value"], 4000000000u);
  EXPECT_EQ(json["metadata"][7]["value"], 1e-5);
  EXPECT_EQ(json["metadata"][8]["value"], true);
  EXPECT_EQ(json["metadata"][12], nlohmann::json::parse(R"({"key": "b.ints", "type":
      "array of int32", "count": 3, "first": [3, 1, -2]})"));
  EXPECT_EQ(json["metadata"][19]["first"].size(), 8u);
  EXPECT_TRUE(json["metadata"][20]["value"].is_null());
  EXPECT_EQ(json["tensors"][1], nlohmann::json::parse(R"({"name": "blk.0.attn_q.weight",
      "type": "Q4_1", "shape": [32, 2], "bytes": 40})"));
  EXPECT_TRUE(json["tensors"][4]["bytes"].is_null());
  EXPECT_EQ(json["totals_by_type"]["Q8_0"]["elements"], 64);
  EXPECT_EQ(json["total"]["bytes"], 166);
  EXPECT_DOUBLE_EQ(json["bits_per_weight"], 8.0 * 166 / 145);
  EXPECT_EQ(json["kv_bytes_per_token"]["f16"], 23040);
}

TEST(GgufDescribe, AnEmptyFileHasNoBitsPerWeight) {
  const auto bytes = ExactBytes(GgufWriter().Bytes());
  const auto gguf = Gguf::Parse(bytes, "empty.gguf");
  EXPECT_THAT(DescribeText(*gguf, {}), HasSubstr("all    0 tensors, 0 elements, 0 bytes\n"));
  EXPECT_TRUE(nlohmann::json::parse(DescribeJson(*gguf, {}))["bits_per_weight"].is_null());
}

}  // namespace
}  // namespace kvern::model
