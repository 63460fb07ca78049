#include "server/log.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/clock.h"
#include "server/request_trace.h"

namespace kvern::server {
namespace {

// What is written into a file of the log's own.
class Written {
 public:
  explicit Written(bool is_json) : log(file_, is_json) {}
  ~Written() { std::fclose(file_); }

  std::string Take() {
    std::rewind(file_);
    std::string text;
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }

 private:
  std::FILE* const file_ = std::tmpfile();

 public:
  ServerLog log;
};

TEST(ServerLog, WritesALineForPeople) {
  Written written(/*is_json=*/false);
  written.log.Say("serving");
  written.log.Write("request",
                    {{"path", std::string("/a b\n\xff")}, {"n", int64_t{3}}, {"ms", 1.25}});
  EXPECT_EQ(written.Take(), "kvern: serving\nkvern: request path=/a?b?? n=3 ms=1.2\n");
}

TEST(ServerLog, OrAsJson) {
  Written written(/*is_json=*/true);
  written.log.Write("request", {{"path", std::string("/\"\xff")}, {"n", int64_t{3}}, {"ms", 1.25}});
  const auto line = nlohmann::json::parse(written.Take());
  EXPECT_EQ(line["event"], "request");
  EXPECT_GT(line["time"], 1.7e9);
  EXPECT_EQ(line["n"], 3);
  EXPECT_EQ(line["ms"], 1.25);
}

TEST(RequestTrace, TellsARequestWhenItIsOver) {
  const SteadyClock clock;
  Written written(/*is_json=*/true);
  {
    RequestTrace trace(written.log, clock, "POST", "/v1/completions", "id-1");
    trace.SetTenant("acme");
    trace.SetStatus(200);
    Report report{.prompt_tokens = 7, .completion_tokens = 3};
    report.prompt.ram = 5;
    report.ttft_us = 1500;
    trace.SetAnswer(report, FinishReason::kStop);
    EXPECT_EQ(written.Take(), "");
  }
  const auto line = nlohmann::json::parse(written.Take());
  EXPECT_EQ(line["path"], "/v1/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["tenant"], "acme");
  EXPECT_EQ(line["prompt"], 7);
  EXPECT_EQ(line["found"], 5);
  EXPECT_EQ(line["ttft_ms"], 1.5);
  EXPECT_EQ(line["finish"], "stop");
}

TEST(RequestTrace, TellsOfQuietOnesTheirFailures) {
  const SteadyClock clock;
  Written written(/*is_json=*/false);
  for (const int status : {200, 503}) {
    RequestTrace trace(written.log, clock, "GET", "/health", "x");
    trace.SetQuiet();
    trace.SetStatus(status);
  }
  EXPECT_EQ(written.Take().find("status=200"), std::string::npos);
  EXPECT_NE(written.Take().find("status=503"), std::string::npos);
}

}  // namespace
}  // namespace kvern::server
