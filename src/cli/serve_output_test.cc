#include "cli/serve_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kvern::cli {
namespace {

ServeReport Example() {
  ServeReport report{
      .workload = "chat", .description = "a <test>", .level = {}, .summary = {}, .verdict = {}};
  report.summary.num_done = 3;
  report.summary.seconds = 2;
  report.summary.output_tokens = 30;
  report.summary.ttft_us = PercentilesOf({1500, 2500});
  report.summary.engine.kv.prompts.ram = 48;
  report.summary.engine.kv.prompts.miss[0] = 16;
  report.verdict = {.bound = Bound::kKv, .kv_share = 0.5, .levers = {"more KV memory"}};
  return report;
}

TEST(ServeOutput, TheTableNamesWhatWasMeasured) {
  const std::string text = ToText(Example());
  for (const char* words :
       {"chat: a <test>", "3 done, 0 failed, 0 refused in 2.00 s", "15.0 t/s generated", "2.50",
        "64 tokens: 75.0 % found, 48 in RAM", "16 never_seen", "KV-bound: somebody waited",
        "would help: more KV memory"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("goodput"), std::string::npos);
  EXPECT_EQ(text.find("TPOT"), std::string::npos);
}

TEST(ServeOutput, JsonHasTheSame) {
  ServeReport report = Example();
  report.level.ttft_us = 1;
  const nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["requests"]["done"], 3);
  EXPECT_EQ(json["ttft_us"]["max"], 2500);
  EXPECT_EQ(json["prompts"]["ram"], 48);
  EXPECT_EQ(json["verdict"]["bound"], "KV-bound");
  EXPECT_EQ(json["good_requests"], 0);
}

TEST(ServeOutput, WhatAServerDoesNotTellIsLeftOut) {
  ServeReport report = Example();
  report.server = "http://h:1, m";
  report.summary.view = EngineView::kMetrics;
  report.summary.failures = {{"503", 2}, {"connection", 1}};
  std::string text = ToText(report);
  for (const char* words : {"server        http://h:1, m", "failures      503 × 2, connection × 1",
                            "48 in RAM", "KV-bound: somebody waited"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  EXPECT_EQ(text.find("blocks"), std::string::npos) << text;
  EXPECT_FALSE(ToJson(report)["kv"].contains("blocks_merged"));
  report.summary.view = EngineView::kNothing;
  report.summary.prompt_tokens = 64;
  report.summary.cached_tokens = 16;
  text = ToText(report);
  EXPECT_NE(text.find("64 tokens: 25.0 % found"), std::string::npos) << text;
  EXPECT_EQ(text.find("verdict"), std::string::npos) << text;
  const nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["failures"]["503"], 2);
  EXPECT_EQ(json["cached_tokens"], 16);
  for (const char* const key : {"prompts", "kv", "engine", "verdict", "queue_us"}) {
    EXPECT_FALSE(json.contains(key)) << key;
  }
}

TEST(ServeOutput, ChartsKeepTheLastPointOfManySamples) {
  ServeRun run;
  for (int i = 0; i < 5000; ++i) {
    run.samples.push_back(
        {.time_us = i * 20'000, .bytes = {.active = 1 << 20}, .running = 1, .waiting = 0});
  }
  const std::string svg = DrawKvStates(run, "a & b");
  EXPECT_NE(svg.find("a &amp; b"), std::string::npos);
  EXPECT_LT(svg.size(), 100'000u);
  EXPECT_NE(DrawLatencies(run, "x").find("</svg>"), std::string::npos);
}

}  // namespace
}  // namespace kvern::cli
