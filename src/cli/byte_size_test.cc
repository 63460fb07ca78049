#include "cli/byte_size.h"

#include <gtest/gtest.h>

namespace kvern::cli {
namespace {

TEST(ByteSize, HasPowersOf1024) {
  EXPECT_EQ(ParseByteSize("--budget", "131072").value(), 131072u);
  EXPECT_EQ(ParseByteSize("--budget", "0").value(), 0u);
  EXPECT_EQ(ParseByteSize("--budget", "7B").value(), 7u);
  EXPECT_EQ(ParseByteSize("--budget", "128KiB").value(), 131072u);
  EXPECT_EQ(ParseByteSize("--budget", "3MiB").value(), 3u << 20);
  EXPECT_EQ(ParseByteSize("--budget", "24GiB").value(), uint64_t{24} << 30);
  EXPECT_EQ(ParseByteSize("--budget", "16777215TiB").value(), uint64_t{16777215} << 40);
}

TEST(ByteSize, AnErrorNamesTheFlagAndTheUnits) {
  for (const std::string text : {"", "GiB", "-1", "1.5GiB", "24GB", "24gib", " 1", "1 ", "1GiBs",
                                 "16777216TiB", "18446744073709551616"}) {
    const auto size = ParseByteSize("--budget", text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(size.error().message, "--budget: '" + text +
                                        "' is not a size: give a whole number of B, KiB, MiB, GiB "
                                        "or TiB, like 24GiB");
  }
}

}  // namespace
}  // namespace kvern::cli
