#include "engine/exec/golden.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "compute/numerics_version.h"
#include "model/arch/architecture.h"

namespace kvern::engine {
namespace {

TEST(GoldenTest, EveryInstructionSetGivesTheCommittedLogits) {
  for (const compute::Isa& isa : compute::Isas()) {
    if (!isa.supported()) continue;
    for (const GoldenCase& golden : GoldenCases()) {
      const auto digest = DigestLogits(golden, isa, /*num_threads=*/1);
      ASSERT_TRUE(digest.ok()) << golden.name << ": " << digest.error().message;
      EXPECT_EQ(digest->ToHex(), golden.logits)
          << golden.name << " on " << isa.name << ": logits changed. If no result should have, "
          << "find out why. If the change is meant, raise kNumericsVersion from "
          << compute::kNumericsVersion
          << " (src/compute/numerics_version.h), say what changed in docs/numerics.md and "
          << "CHANGELOG.md, and put the new digest into src/engine/exec/golden.cc";
    }
    EXPECT_TRUE(CheckGoldenLogits(isa).ok()) << isa.name;
  }
}

TEST(GoldenTest, ThreadsDoNotMatter) {
  const compute::Isa& isa = **compute::SelectIsa("auto");
  for (const GoldenCase& golden : GoldenCases()) {
    EXPECT_EQ(DigestLogits(golden, isa, /*num_threads=*/3)->ToHex(), golden.logits) << golden.name;
  }
}

TEST(GoldenTest, CasesCoverEveryRowOfTheTables) {
  std::set<std::string> architectures;
  std::set<compute::QuantType> types;
  std::set<compute::KvDtype> k_dtypes, v_dtypes;
  for (const GoldenCase& golden : GoldenCases()) {
    architectures.insert(golden.spec.architecture);
    types.insert(golden.spec.types.begin(), golden.spec.types.end());
    k_dtypes.insert(golden.k_dtype);
    v_dtypes.insert(golden.v_dtype);
  }
  EXPECT_EQ(architectures.size(), model::Architectures().size());
  EXPECT_EQ(types.size(), compute::QuantTypes().size());
  EXPECT_EQ(k_dtypes.size(), compute::KvDtypes().size());
  EXPECT_EQ(v_dtypes.size(), compute::KvDtypes().size());
}

}  // namespace
}  // namespace kvern::engine
