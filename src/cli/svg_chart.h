// Charts as SVG documents: lines, which the demo and the benchmarks draw, and stacked bars.
//
// Readable in light and dark viewers (they paint their own background), by colour-blind people
// (line styles differ too), and without fonts of their own. Pure functions of their input.
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

struct ChartBar {
  std::string name;
  std::string note;           // stands above the bar
  std::vector<double> parts;  // as many as the chart has, none negative
};

// Horizontal bars, each of the same parts.
struct BarChart {
  std::string title;
  std::string x_label;  // with its unit
  std::vector<std::string> parts;
  std::vector<ChartBar> bars;
};

// The x axis starts at 0.
std::string RenderBarsSvg(const BarChart& chart);

// Round positions for an axis from `low` to `high`: about five, steps of 1, 2 or 5 · 10ⁿ, the last
// at or above `high`. Exposed for tests.
std::vector<double> AxisTicks(double low, double high);

}  // namespace kvern::cli
