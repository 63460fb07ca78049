#include "cli/svg_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace kvern::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(AxisTicks, AreRoundAndCoverTheRange) {
  EXPECT_THAT(AxisTicks(0, 10), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(AxisTicks(0, 2048), ElementsAre(0, 500, 1000, 1500, 2000, 2500));
  EXPECT_THAT(AxisTicks(100, 130), ElementsAre(100, 110, 120, 130));
  EXPECT_THAT(AxisTicks(3, 3), ElementsAre(3, 3.2, 3.4000000000000004, 3.6, 3.8000000000000003, 4));
}

TEST(RenderSvg, DrawsEveryLineWithItsNameAndItsStyle) {
  const std::string svg =
      RenderSvg({.title = "Steps & costs",
                 .x_label = "position (tokens)",
                 .y_label = "ms per step",
                 .lines = {{"without <cache>", {{0, 1}, {10, 9}}}, {"with", {{0, 1}, {10, 1}}}}});
  EXPECT_THAT(svg, HasSubstr("Steps &amp; costs"));
  EXPECT_THAT(svg, HasSubstr("without &lt;cache&gt;"));
  // The plot is 656 wide from x = 80 and 308 high, with y = 0 at 356 and ticks up to 10.
  EXPECT_THAT(svg, HasSubstr("points=\"80.0,325.2 736.0,78.8 \""));
  EXPECT_THAT(svg, HasSubstr("points=\"80.0,325.2 736.0,325.2 \""));
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray=\"8 4\""));
}

TEST(RenderSvg, LeavesOutWhatCannotBeDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg = RenderSvg({.title = "",
                                     .x_label = "",
                                     .y_label = "",
                                     .lines = {{"a", {{0, nan}, {1, 1}, {2, 2}}}, {"empty", {}}}});
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, HasSubstr("points=\"\""));
}

TEST(RenderBarsSvg, StacksThePartsOfABar) {
  const std::string svg =
      RenderBarsSvg({.title = "Memory",
                     .x_label = "GiB",
                     .parts = {"used", "free & idle"},
                     .bars = {{"paged", "a note", {6, 4}}, {"static", "", {1, 2}}}});
  EXPECT_THAT(svg, HasSubstr(">free &amp; idle</text>"));
  EXPECT_THAT(svg, HasSubstr(">a note</text>"));
  // 656 wide from x = 80, and 10 is the end.
  EXPECT_THAT(svg, HasSubstr("<rect x=\"80.0\" y=\"92.0\" width=\"393.6\" height=\"28.0\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"473.6\" y=\"92.0\" width=\"262.4\" height=\"28.0\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"145.6\" y=\"148.0\" width=\"131.2\" height=\"28.0\""));
}

}  // namespace
}  // namespace kvern::cli
