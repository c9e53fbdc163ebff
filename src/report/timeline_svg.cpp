#include "report/timeline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "report/device_order.h"
#include "report/markup.h"

namespace millrace::report {
namespace {

constexpr double kLeft = 128;
constexpr double kChart = 1040;
constexpr double kRight = 24;
constexpr double kTop = 74;
constexpr double kRow = 34;
constexpr double kBar = 20;
constexpr double kStrip = 5;
constexpr double kLeastWidth = 0.025;

constexpr const char* kStyle = R"(<style>
text { font: 12px sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: bold }
.small { font-size: 11px; fill: #57606a }
.number { font-size: 10px; fill: #ffffff; text-anchor: middle }
.paper { fill: #ffffff }
.lane { fill: #f3f4f6 }
.grid { stroke: #d0d7de; stroke-width: 1 }
.forward { fill: #2f6fb3 }
.backward { fill: #b85214 }
.weights { fill: #8f6a3c }
.update { fill: #27784b }
.communication { fill: #8a63c9 }
.wait { fill: #a8b0b9 }
.data { fill: #1b9aaa }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .small { fill: #9da7b1 }
  .number { fill: #0d1117 }
  .paper { fill: #0d1117 }
  .lane { fill: #1b222c }
  .grid { stroke: #30363d }
  .forward { fill: #4a8fd8 }
  .backward { fill: #d9722f }
  .weights { fill: #b98a62 }
  .update { fill: #3fa76c }
  .wait { fill: #5b6570 }
}
</style>
)";

// The largest of 1, 2, 5 times a power of ten that divides the window into at least five.
double tick_of(double nanoseconds) {
  const double rough = nanoseconds / 5;
  const double power = std::pow(10, std::floor(std::log10(std::max(rough, 1.0))));
  for (const double factor : {5.0, 2.0}) {
    if (factor * power <= rough) return factor * power;
  }
  return power;
}

// The part of a split backward pass that makes the weights' gradients.
bool makes_weights(const runtime::TraceEvent& event) {
  return event.category == runtime::TraceCategory::backward && event.name.ends_with("weights");
}

std::string time_text(double nanoseconds) {
  if (nanoseconds >= 1e9) return fmt::format("{:g} s", nanoseconds / 1e9);
  if (nanoseconds >= 1e6) return fmt::format("{:g} ms", nanoseconds / 1e6);
  return fmt::format("{:g} us", nanoseconds / 1e3);
}

class Drawing {
 public:
  Drawing(const runtime::TraceLog& log, const TimeWindow& window) : log_(log), window_(window) {
    rows_.resize(log.devices.size());
    const std::vector<size_t> order = device_order(log);
    for (size_t i = 0; i < order.size(); ++i) rows_[order[i]] = static_cast<double>(i);
    bottom_ = kTop + kRow * static_cast<double>(rows_.size());
  }

  std::string take(const std::string& title) {
    const double width = kLeft + kChart + kRight;
    const double height = bottom_ + 40;
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" width=\"{0:g}\" "
        "height=\"{1:g}\" role=\"img\">\n<title>{2}</title>\n{3}"
        "<rect class=\"paper\" width=\"{0:g}\" height=\"{1:g}\"/>\n"
        "<text class=\"title\" x=\"16\" y=\"26\">{2}</text>\n",
        width, height, escaped(title), kStyle);
    legend();
    axis();
    for (size_t i = 0; i < log_.devices.size(); ++i) label(i);
    for (const bool waits : {true, false}) {
      for (const runtime::TraceEvent& event : log_.events) {
        if ((event.category == runtime::TraceCategory::wait) == waits) bar(event);
      }
    }
    return svg_ + "</svg>\n";
  }

 private:
  double place(double nanoseconds) const {
    const double span = std::max<double>(1, static_cast<double>(window_.end - window_.begin));
    return kLeft + kChart * (nanoseconds - static_cast<double>(window_.begin)) / span;
  }

  double top_of(size_t device) const { return kTop + kRow * rows_[device]; }

  void legend() {
    double x = 16;
    const auto entry = [&](std::string_view style, std::string_view text) {
      svg_ += fmt::format(
          "<rect class=\"{}\" x=\"{:g}\" y=\"40\" width=\"12\" height=\"12\" rx=\"2\"/>"
          "<text class=\"small\" x=\"{:g}\" y=\"50\">{}</text>\n",
          style, x, x + 17, text);
      x += 34 + 6.4 * static_cast<double>(text.size());
    };
    const bool split = std::any_of(log_.events.begin(), log_.events.end(), makes_weights);
    for (int i = 0; i < runtime::kTraceCategories; ++i) {
      const auto category = static_cast<runtime::TraceCategory>(i);
      entry(runtime::name_of(category), runtime::name_of(category));
      if (category == runtime::TraceCategory::backward && split)
        entry("weights", "backward to weights");
    }
    svg_ +=
        fmt::format("<text class=\"small\" x=\"{:g}\" y=\"50\">number: micro-batch</text>\n", x);
  }

  void axis() {
    const double span = static_cast<double>(window_.end - window_.begin);
    const double tick = tick_of(span);
    for (double t = 0; t <= span * (1 + 1e-9); t += tick) {
      const double x = place(static_cast<double>(window_.begin) + t);
      svg_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:g}\" y2=\"{2:g}\"/>"
          "<text class=\"small\" x=\"{0:.1f}\" y=\"{3:g}\" text-anchor=\"middle\">{4}</text>\n",
          x, kTop - 6, bottom_ + 4, bottom_ + 20, time_text(t));
    }
  }

  void label(size_t i) {
    const runtime::TraceDevice& device = log_.devices[i];
    svg_ += fmt::format(
        "<rect class=\"lane\" x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\"/>"
        "<text x=\"16\" y=\"{:g}\">stage {} · {}:{}</text>\n",
        kLeft, top_of(i), kChart, kBar + kStrip + 2, top_of(i) + 15, device.stage, device.node,
        device.device);
  }

  void bar(const runtime::TraceEvent& event) {
    const auto begin = static_cast<double>(std::max(event.begin, window_.begin));
    const auto end = static_cast<double>(std::min(event.end, window_.end));
    if (begin >= end) return;
    const double x = place(begin);
    const double width = place(end) - x;
    if (width < kLeastWidth) return;
    double y = top_of(static_cast<size_t>(event.device));
    double height = kBar;
    if (event.category == runtime::TraceCategory::communication ||
        event.category == runtime::TraceCategory::data) {
      y += kBar + 1;
      height = kStrip;
    } else if (event.category == runtime::TraceCategory::wait) {
      y += kBar / 2 - 3;
      height = 6;
    }
    const double gap = width > 3 ? 0.6 : 0;
    svg_ += fmt::format(
        "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:g}\" width=\"{:.2f}\" height=\"{:g}\">"
        "<title>{}: {}{}, {}</title></rect>\n",
        makes_weights(event) ? "weights" : runtime::name_of(event.category), x, y, width - gap,
        height, runtime::name_of(event.category), escaped(event.name),
        event.micro_batch >= 0 ? fmt::format(", micro-batch {}", event.micro_batch) : "",
        time_text(static_cast<double>(event.end - event.begin)));
    const std::string number = std::to_string(event.micro_batch);
    const bool fits = width > 4 + 6.5 * static_cast<double>(number.size());
    const bool numbered = event.category == runtime::TraceCategory::forward ||
                          event.category == runtime::TraceCategory::backward;
    if (!numbered || event.micro_batch < 0 || !fits) return;
    svg_ += fmt::format("<text class=\"number\" x=\"{:.2f}\" y=\"{:g}\">{}</text>\n", x + width / 2,
                        y + 14, number);
  }

  const runtime::TraceLog& log_;
  const TimeWindow& window_;
  std::vector<double> rows_;  // by device
  double bottom_ = 0;
  std::string svg_;
};

}  // namespace

std::vector<size_t> device_order(const runtime::TraceLog& log) {
  std::vector<size_t> order(log.devices.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const runtime::TraceDevice& x = log.devices[a];
    const runtime::TraceDevice& y = log.devices[b];
    return std::tie(x.stage, x.node, x.device) < std::tie(y.stage, y.node, y.device);
  });
  return order;
}

std::string timeline_svg(const runtime::TraceLog& log, const TimeWindow& window,
                         const std::string& title) {
  return Drawing(log, window).take(title);
}

}  // namespace millrace::report
