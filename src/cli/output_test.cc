#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/json_output.h"
#include "cli/progress.h"
#include "cli/reply_stats.h"

namespace kvern::cli {
namespace {

TEST(FormatBytes, UsesBinaryUnits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(22528), "22.0 KiB");
  EXPECT_EQ(FormatBytes(uint64_t{3} << 30), "3.0 GiB");
}

TEST(FormatStats, LeavesOutWhatDidNotHappen) {
  EXPECT_EQ(FormatStats({.prompt_tokens = 31,
                         .cached_tokens = 12,
                         .reply_tokens = 64,
                         .prefill_seconds = 0.1,
                         .decode_seconds = 0.5,
                         .kv_bytes = 1 << 21}),
            "prefill 31 tokens (12 cached), 190.0 t/s; decode 64 tokens, 126.0 t/s; "
            "KV cache 2.0 MiB");
  EXPECT_EQ(FormatStats({}), "prefill 0 tokens, 0.0 t/s; decode 0 tokens, 0.0 t/s; KV cache 0 B");
}

TEST(ProgressLine, FillsUp) {
  EXPECT_EQ(ProgressLine("Loading", 0), "Loading  [>                             ] 0 %");
  EXPECT_EQ(ProgressLine("Loading", 0.5), "Loading  [===============>              ] 50 %");
  EXPECT_EQ(ProgressLine("Loading", 1.5), "Loading  [==============================] 100 %");
  EXPECT_EQ(ProgressLine("Loading", 0.5, "3 of 6"), "Loading  [======>     ] 50 %  3 of 6");
}

TEST(ToJsonText, IsValidUtf8) {
  EXPECT_EQ(ToJsonText({{"text", "a\xff"}}), "{\n  \"text\": \"a\uFFFD\"\n}\n");
}

}  // namespace
}  // namespace kvern::cli
