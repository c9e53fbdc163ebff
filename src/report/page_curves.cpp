#include "report/page_curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>

#include "report/page_section.h"

namespace millrace::report {
namespace {

constexpr size_t kMostRuns = 7;  // as many as there are colours

using Value = std::optional<double> StepPoint::*;

struct Range {
  double sum = 0, low = 0, high = 0;
  size_t count = 0;
};

Range range_of(std::span<const StepPoint> points, Value value) {
  Range range;
  for (const StepPoint& point : points) {
    if (!(point.*value)) continue;
    const double number = *(point.*value);
    range.low = range.count == 0 ? number : std::min(range.low, number);
    range.high = range.count == 0 ? number : std::max(range.high, number);
    range.sum += number;
    ++range.count;
  }
  return range;
}

// Six digits are more than a curve shows.
Json rounded(double value) { return Json::parse(fmt::format("{:.6g}", value), nullptr, false); }

bool changes(const std::vector<StepPoint>& points, Value value) {
  return std::any_of(points.begin(), points.end(), [&](const StepPoint& point) {
    return point.*value && points.front().*value && *(point.*value) != *(points.front().*value);
  });
}

}  // namespace

CurveData curves_of(const std::vector<StepPoint>& points) {
  CurveData curves;
  curves.steps = points.size();
  if (points.empty()) return curves;
  curves.stride = (points.size() + kMostPagePoints - 1) / kMostPagePoints;
  curves.changes_learning_rate = changes(points, &StepPoint::learning_rate);
  curves.changes_loss_scale = changes(points, &StepPoint::loss_scale);
  curves.has_rate = std::any_of(points.begin(), points.end(), [](const StepPoint& point) {
    return point.samples_per_second.has_value();
  });
  const std::pair<const char*, Value> kinds[] = {
      {"loss", &StepPoint::loss},
      {"samples_per_second", &StepPoint::samples_per_second},
      {"learning_rate", &StepPoint::learning_rate},
      {"loss_scale", &StepPoint::loss_scale}};
  curves.json["steps"] = Json::array();
  for (size_t i = 0; i < points.size(); i += curves.stride) {
    const auto part = std::span(points).subspan(i, std::min(curves.stride, points.size() - i));
    curves.json["steps"].push_back(part.back().step);
    for (const auto& [name, value] : kinds) {
      const Range range = range_of(part, value);
      const bool none = range.count == 0;
      curves.json[name].push_back(none ? Json()
                                       : rounded(range.sum / static_cast<double>(range.count)));
      if (curves.stride == 1 || value == &StepPoint::learning_rate) continue;
      curves.json["low"][name].push_back(none ? Json() : rounded(range.low));
      curves.json["high"][name].push_back(none ? Json() : rounded(range.high));
    }
  }
  return curves;
}

namespace {

// The share of right answers, or else the first of the figures, that two runs or more have.
std::string common_figure(const std::vector<RunFacts>& facts) {
  std::map<std::string, size_t> counts;
  for (const RunFacts& run : facts) {
    if (run.evaluations.empty()) continue;
    for (const auto& [name, value] : run.evaluations.back().figures) ++counts[name];
  }
  for (const char* name : {"top1", "verification", "auc"}) {
    if (counts[name] > 1) return name;
  }
  return {};
}

void add_all_accuracies(const std::vector<RunFacts>& facts, PageParts& page) {
  const std::string name = common_figure(facts);
  Json lines = Json::array();
  size_t points = 0;
  for (const RunFacts& run : facts) {
    if (name.empty() || lines.size() >= kMostRuns) break;
    Json line = {{"name", run.name}, {"points", Json::array()}};
    for (const Evaluation& evaluation : run.evaluations) {
      const std::optional<double> figure = evaluation.figure(name);
      if (figure) line["points"].push_back({evaluation.step, *figure});
    }
    points = std::max(points, line["points"].size());
    lines.push_back(std::move(line));
  }
  if (points < 2) return;
  page.data["accuracies"] = {lines};
  page.body += card("Accuracy of all runs", "accuracies/0",
                    fmt::format("“{}” of each evaluation, by step.", name), {});
}

void add_all_losses(const std::vector<RunFacts>& facts, PageParts& page) {
  Json lines = Json::array();
  size_t runs = 0;
  for (const RunFacts& run : facts) {
    if (run.points.size() < 2) continue;
    if (++runs > kMostRuns) continue;
    const Json json = curves_of(run.points).json;
    lines.push_back({{"name", run.name}, {"steps", json["steps"]}, {"loss", json["loss"]}});
  }
  if (lines.size() < 2) return;
  page.data["comparison"] = {lines};
  page.body +=
      card("Loss of all runs", "comparison/0",
           runs > kMostRuns ? fmt::format("By step; the first {} of {} runs.", kMostRuns, runs)
                            : "By step.",
           {});
}

}  // namespace

void add_comparison(const std::vector<RunFacts>& facts, PageParts& page) {
  if (facts.size() < 2) return;
  page.body += "<div class=\"cards\">\n";
  add_all_losses(facts, page);
  add_all_accuracies(facts, page);
  page.body += "</div>\n";
}

}  // namespace millrace::report
