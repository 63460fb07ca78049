#include "cli/svg_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

namespace kvern::cli {
namespace {

constexpr double kWidth = 760, kHeight = 420;
constexpr double kLeft = 80, kRight = 24, kTop = 48, kBottom = 64;
constexpr double kBarHeight = 28, kBarDistance = 56, kPartNameWidth = 160;
constexpr size_t kUsualTicks = 5;

struct LineStyle {
  std::string_view color;
  std::string_view dashes;
};

// Okabe and Ito's palette, told apart by people with any colour vision.
constexpr LineStyle kStyles[] = {
    {"#0072b2", "none"}, {"#d55e00", "8 4"},      {"#009e73", "2 4"},
    {"#cc79a7", "none"}, {"#56b4e9", "12 4 2 4"}, {"#e69f00", "8 4"},
};

// From the same palette; the last of four parts is what is left over.
constexpr std::string_view kPartColors[] = {"#0072b2", "#e69f00", "#d55e00", "#dddddd"};

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

// One direction of the plot: values to pixels.
struct Axis {
  std::vector<double> ticks;
  double pixel_low, pixel_high;

  double Pixel(double value) const {
    const double share = (value - ticks.front()) / (ticks.back() - ticks.front());
    return pixel_low + share * (pixel_high - pixel_low);
  }
};

bool IsDrawable(const ChartPoint& point) {
  return std::isfinite(point.x) && std::isfinite(point.y);
}

struct Plot {
  Axis x, y;
};

Plot MakePlot(const LineChart& chart) {
  double x_low = 0, x_high = 1, y_high = 0;
  bool is_first = true;
  for (const ChartLine& line : chart.lines) {
    for (const ChartPoint& point : line.points) {
      if (!IsDrawable(point)) continue;
      x_low = is_first ? point.x : std::min(x_low, point.x);
      x_high = is_first ? point.x : std::max(x_high, point.x);
      y_high = std::max(y_high, point.y);
      is_first = false;
    }
  }
  return {.x = {AxisTicks(x_low, x_high), kLeft, kWidth - kRight},
          .y = {AxisTicks(0, y_high), kHeight - kBottom, kTop}};
}

std::string DrawText(double x, double y, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, attributes,
                     Escape(text));
}

std::string OpenDocument(double height) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
      "height=\"{1:g}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#ffffff\"/>\n",
      kWidth, height);
}

std::string DrawTitle(const std::string& title) {
  return DrawText(kLeft, 26, "font-size=\"16\" font-weight=\"bold\"", title);
}

std::string DrawRect(double x, double y, double width, double height, std::string_view color) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x, y,
      width, height, color);
}

std::string DrawAxes(const LineChart& chart, const Plot& plot) {
  std::string svg;
  for (const double tick : plot.y.ticks) {
    const double y = plot.y.Pixel(tick);
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n",
        kLeft, y, kWidth - kRight, y);
    svg += DrawText(kLeft - 8, y + 4, "text-anchor=\"end\"", fmt::format("{:g}", tick));
  }
  for (const double tick : plot.x.ticks) {
    svg += DrawText(plot.x.Pixel(tick), kHeight - kBottom + 20, "text-anchor=\"middle\"",
                    fmt::format("{:g}", tick));
  }
  svg += DrawText((kLeft + kWidth - kRight) / 2, kHeight - 20, "text-anchor=\"middle\"",
                  chart.x_label);
  const double middle = (kTop + kHeight - kBottom) / 2;
  svg += DrawText(20, middle,
                  fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 20 {:.1f})\"", middle),
                  chart.y_label);
  return svg + DrawTitle(chart.title);
}

std::string DrawLine(const ChartLine& line, const LineStyle& style, const Plot& plot) {
  std::string points;
  for (const ChartPoint& point : line.points) {
    if (!IsDrawable(point)) continue;
    points += fmt::format("{:.1f},{:.1f} ", plot.x.Pixel(point.x), plot.y.Pixel(point.y));
  }
  return fmt::format(
      "<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-dasharray=\"{}\" "
      "points=\"{}\"/>\n",
      style.color, style.dashes, points);
}

std::string DrawLegendEntry(const ChartLine& line, const LineStyle& style, size_t index) {
  const double y = kTop + 16 + 20 * static_cast<double>(index);
  return fmt::format(
             "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
             "stroke-width=\"2\" stroke-dasharray=\"{}\"/>\n",
             kLeft + 12, y, kLeft + 44, y, style.color, style.dashes) +
         DrawText(kLeft + 52, y + 4, "", line.name);
}

std::string DrawPartNames(const std::vector<std::string>& parts) {
  std::string svg;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double x = kLeft + kPartNameWidth * static_cast<double>(i);
    svg += DrawRect(x, kTop - 6, 12, 12, kPartColors[i % std::size(kPartColors)]);
    svg += DrawText(x + 18, kTop + 4, "", parts[i]);
  }
  return svg;
}

std::string DrawBar(const ChartBar& bar, const Axis& axis, double y) {
  std::string svg = DrawText(kLeft - 8, y + kBarHeight / 2 + 4, "text-anchor=\"end\"", bar.name) +
                    DrawText(kLeft, y - 6, "", bar.note);
  double sum = 0;
  for (size_t i = 0; i < bar.parts.size(); ++i) {
    const double begin = axis.Pixel(sum);
    sum += bar.parts[i];
    svg += DrawRect(begin, y, axis.Pixel(sum) - begin, kBarHeight,
                    kPartColors[i % std::size(kPartColors)]);
  }
  return svg;
}

}  // namespace

std::vector<double> AxisTicks(double low, double high) {
  if (!(high > low)) high = low + 1;
  const double rough = (high - low) / kUsualTicks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (rough <= factor * power) step = factor * power;
  }
  const double first = std::floor(low / step);
  const double last = std::ceil(high / step);
  std::vector<double> ticks;
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string RenderSvg(const LineChart& chart) {
  const Plot plot = MakePlot(chart);
  std::string svg = OpenDocument(kHeight);
  svg += DrawAxes(chart, plot);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const LineStyle& style = kStyles[i % std::size(kStyles)];
    svg += DrawLine(chart.lines[i], style, plot);
    svg += DrawLegendEntry(chart.lines[i], style, i);
  }
  return svg + "</svg>\n";
}

std::string RenderBarsSvg(const BarChart& chart) {
  double high = 0;
  for (const ChartBar& bar : chart.bars) {
    high = std::max(high, std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0));
  }
  const Axis axis{AxisTicks(0, high), kLeft, kWidth - kRight};
  const double bottom = kTop + 16 + kBarDistance * static_cast<double>(chart.bars.size()) + 12;
  std::string svg = OpenDocument(bottom + kBottom) + DrawTitle(chart.title);
  svg += DrawPartNames(chart.parts);
  for (const double tick : axis.ticks) {
    svg += DrawText(axis.Pixel(tick), bottom + 20, "text-anchor=\"middle\"",
                    fmt::format("{:g}", tick));
  }
  svg += DrawText((kLeft + kWidth - kRight) / 2, bottom + kBottom - 20, "text-anchor=\"middle\"",
                  chart.x_label);
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const double y = kTop + 16 + kBarDistance * static_cast<double>(i) + kBarDistance - kBarHeight;
    svg += DrawBar(chart.bars[i], axis, y);
  }
  return svg + "</svg>\n";
}

}  // namespace kvern::cli
