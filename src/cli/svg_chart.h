// A line chart as an SVG document: what the demo and the benchmarks draw.
//
// Readable in light and dark viewers (it paints its own background), by colour-blind people (line
// styles differ too), and without fonts of its own. Pure function of its input.
#pragma once

#include <string>
#include <vector>

namespace kvern::cli {

struct ChartPoint {
  double x;
  double y;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // ascending in x
};

struct LineChart {
  std::string title;
  std::string x_label;  // with its unit
  std::string y_label;
  std::vector<ChartLine> lines;
};

// The y axis starts at 0. Points that are not finite are left out.
std::string RenderSvg(const LineChart& chart);

// Round positions for an axis from `low` to `high`: about five, steps of 1, 2 or 5 · 10ⁿ, the last
// at or above `high`. Exposed for tests.
std::vector<double> AxisTicks(double low, double high);

}  // namespace kvern::cli
