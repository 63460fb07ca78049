#include "cli/batch_progress.h"

#include <gtest/gtest.h>

namespace kvern::cli {
namespace {

TEST(FormatBatchStatus, KnowsWhatIsLeftOnceSomethingIsDone) {
  BatchFigures figures{.num_requests = 1000, .num_kept = 100};
  EXPECT_EQ(FormatBatchStatus(figures, 5'000'000), "100/1000 requests, 0.0 t/s, 0 % reused");
  figures.num_done = 50;
  figures.prompt_tokens = 400;
  figures.prompts.ram = 100;
  figures.prompts.in_flight = 200;
  figures.generated_tokens = 1000;
  EXPECT_EQ(FormatBatchStatus(figures, 10'000'000),
            "150/1000 requests, 100.0 t/s, 75 % reused, 2:50 left");
  figures.num_requests = 100'000;
  EXPECT_EQ(FormatBatchStatus(figures, 10'000'000),
            "150/100000 requests, 100.0 t/s, 75 % reused, 5:32:50 left");
}

TEST(FormatBatchSummary, SaysWhatWasDoneAndWhatWasThere) {
  BatchFigures figures{.num_requests = 10, .num_kept = 3, .num_done = 7, .num_failed = 1};
  figures.prompt_tokens = 1000;
  figures.prefilled_tokens = 400;
  figures.prompts = {.ram = 300, .tier = 0, .in_flight = 250, .partial = 50};
  figures.generated_tokens = 128;
  figures.num_dropped_bytes = 12;
  EXPECT_EQ(
      FormatBatchSummary(figures, 64'000'000),
      "requests   7 answered in 1:04, 1 failed; 3 were answered before; an incomplete line of "
      "12 bytes was dropped\n"
      "prompts    1000 tokens: 400 prefilled, 600 reused (60.0 %): 300 from memory, 50 in "
      "part, 250 while others computed them, 0 from tiers\n"
      "generated  128 tokens, 2.0 t/s\n");
}

}  // namespace
}  // namespace kvern::cli
