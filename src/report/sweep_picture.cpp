#include "report/sweep_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/markup.h"

namespace millrace::report {
namespace {

constexpr double kPictureWidth = 720, kPictureHeight = 420;
constexpr double kLeftMargin = 90, kRightMargin = 30, kTopMargin = 50, kBottomMargin = 50;
constexpr int kGridRows = 5;  // of the grid

constexpr const char* kPictureStyle = R"(<style>
text { font: 12px sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: bold }
.paper { fill: #ffffff }
.grid { stroke: #d0d7de; stroke-width: 1 }
.rate { fill: none; stroke: #2f6fb3; stroke-width: 2 }
.point { fill: #2f6fb3 }
.ideal { fill: none; stroke: #57606a; stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .paper { fill: #0d1117 }
  .grid { stroke: #30363d }
}
</style>
)";

struct SweptPoint {
  double value = 0;
  double rate = 0;   // samples per second
  double ideal = 0;  // without any loss
};

std::vector<SweptPoint> swept_points(const Json& described) {
  std::vector<SweptPoint> points;
  for (const Json& one : described["points"]) {
    if (!one["predicted_samples_per_second"].is_number()) continue;
    const double rate = one["predicted_samples_per_second"].get<double>();
    const double efficiency = one["efficiency"].get<double>();
    points.push_back({one["value"].get<double>(), rate, efficiency > 0 ? rate / efficiency : rate});
  }
  return points;
}

// Values that double have equal distances.
class SweepAxes {
 public:
  SweepAxes(const std::vector<SweptPoint>& points, bool ideal)
      : low_(points.front().value), high_(points.back().value) {
    doubles_ = high_ >= 8 * low_;
    for (const SweptPoint& point : points) {
      most_ = std::max(most_, ideal ? std::max(point.rate, point.ideal) : point.rate);
    }
  }

  double x(double value) const {
    if (high_ <= low_) return kLeftMargin;
    const double share = doubles_ ? std::log(value / low_) / std::log(high_ / low_)
                                  : (value - low_) / (high_ - low_);
    return kLeftMargin + share * (kPictureWidth - kLeftMargin - kRightMargin);
  }
  double y(double rate) const {
    return kPictureHeight - kBottomMargin -
           rate / most_ * (kPictureHeight - kTopMargin - kBottomMargin);
  }
  double most() const { return most_; }

 private:
  double low_, high_;
  double most_ = 1e-300;
  bool doubles_ = false;
};

std::string drawn_line(const std::vector<SweptPoint>& points, const SweepAxes& axes,
                       double SweptPoint::*rate, const char* style) {
  std::string text = fmt::format(R"(<polyline class="{}" points=")", style);
  for (const SweptPoint& point : points) {
    text += fmt::format("{:.1f},{:.1f} ", axes.x(point.value), axes.y(point.*rate));
  }
  return text + "\"/>\n";
}

}  // namespace

std::string sweep_picture(const Json& described) {
  const auto over = described["over"].get<std::string>();
  const std::vector<SweptPoint> points = swept_points(described);
  std::string svg = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}">
{2}<rect class="paper" width="{0}" height="{1}"/>
<text class="title" x="{3}" y="28">Samples per second over {4}{5}</text>
)",
      kPictureWidth, kPictureHeight, kPictureStyle, kLeftMargin, escaped(over),
      points.empty() ? ": none fits" : "");
  if (points.empty()) return svg + "</svg>\n";
  const bool scales = over == "devices";
  const SweepAxes axes(points, scales);
  for (int i = 0; i <= kGridRows; ++i) {
    const double rate = axes.most() * i / kGridRows;
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.4g}</text>\n",
        kLeftMargin, kPictureWidth - kRightMargin, axes.y(rate), axes.y(rate), kLeftMargin - 8,
        axes.y(rate) + 4, rate);
  }
  if (scales) svg += drawn_line(points, axes, &SweptPoint::ideal, "ideal");
  svg += drawn_line(points, axes, &SweptPoint::rate, "rate");
  double labelled = -1e9;  // where the last label stands
  for (const SweptPoint& point : points) {
    const double x = axes.x(point.value);
    svg += fmt::format(
        "<circle class=\"point\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"><title>{:g}: {:.4g} "
        "samples/s</title></circle>\n",
        x, axes.y(point.rate), point.value, point.rate);
    if (x - labelled < 50) continue;
    labelled = x;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", x,
                       kPictureHeight - kBottomMargin + 20, point.value);
  }
  return svg + "</svg>\n";
}

}  // namespace millrace::report
