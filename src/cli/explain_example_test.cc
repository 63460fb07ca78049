#include "cli/explain_example.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compute/isa.h"

namespace kvern::cli {
namespace {

engine::WorkedExample Compute(const compute::Isa& isa) {
  auto example = engine::ComputeWorkedExample(isa, compute::KvDtype::kF32, compute::KvDtype::kF32);
  EXPECT_TRUE(example.ok());
  return std::move(*example);
}

TEST(WorkedExampleText, IsTheGoldenTextOnEveryInstructionSet) {
  std::ifstream file("tests/data/explain_example.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  for (const compute::Isa& isa : compute::Isas()) {
    if (!isa.supported()) continue;
    EXPECT_EQ(WorkedExampleText(Compute(isa)), golden.str()) << isa.name;
  }
}

TEST(WorkedExampleJson, HasTheNumbersAndNullForHiddenScores) {
  const auto json = WorkedExampleJson(Compute(compute::Isas()[0]));
  EXPECT_EQ(json["prefill"]["scores"][1][0], 0.5);
  EXPECT_TRUE(json["prefill"]["scores"][0][1].is_null());
  EXPECT_EQ(json["prefill"]["weights"][0], (nlohmann::ordered_json{1.0, 0.0, 0.0}));
  EXPECT_EQ(json["prefill"]["bytes_written"], 3 * 80);
  EXPECT_EQ(json["prefill"]["bytes_read"], 0);
  EXPECT_EQ(json["decode"]["bytes_written"], 80);
  EXPECT_EQ(json["decode"]["bytes_read"], 3 * 80);
  EXPECT_EQ(json["decode"]["cached_keys"].size(), 4u);
  EXPECT_EQ(json["decode"]["outputs"][0], json["uncached_outputs"][3]);
  EXPECT_EQ(json["pool_bytes_after"]["active"], 0);
}

}  // namespace
}  // namespace kvern::cli
