#include "train/metric.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"

namespace millrace {
namespace {

constexpr Metric kMetrics[] = {Metric::top1, Metric::top5, Metric::loss};

std::optional<Metric> metric_named(std::string_view name) {
  for (const Metric metric : kMetrics) {
    if (name_of(metric) == name) return metric;
  }
  return {};
}

}  // namespace

std::string_view name_of(Metric metric) {
  switch (metric) {
    case Metric::top1:
      return "top1";
    case Metric::top5:
      return "top5";
    case Metric::loss:
      return "loss";
  }
  return "?";
}

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const Metric metric : kMetrics) names.emplace_back(name_of(metric));
  return names;
}

Metric parse_metric(const std::string& name) {
  if (const std::optional<Metric> metric = metric_named(name)) return *metric;
  const std::string close = nearest(name, metric_names());
  fail_input("--metric is '{}'; choose one of {}{}.", name, fmt::join(metric_names(), ", "),
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

bool Measured::better_than(const Measured& other) const {
  return metric == Metric::loss ? value < other.value : value > other.value;
}

Measured measure(const EvaluationReport& report, Metric metric) {
  if (metric == Metric::loss) return {metric, report.loss};
  return {metric, metric == Metric::top1 ? report.top1 : report.top5};
}

Json to_json(const Measured& measured) {
  return {{"metric", name_of(measured.metric)}, {"value", measured.value}};
}

std::optional<Measured> parse_measured(const Json& json) {
  if (!json.is_object()) return {};
  const Json name = json.value("metric", Json());
  const Json value = json.value("value", Json());
  if (!name.is_string() || !value.is_number()) return {};
  const std::optional<Metric> metric = metric_named(name.get<std::string>());
  if (!metric) return {};
  return Measured{*metric, value.get<double>()};
}

std::string describe(const Measured& measured) {
  if (measured.metric == Metric::loss) return fmt::format("loss {:.4f}", measured.value);
  return fmt::format("top-{} {:.2f} %", measured.metric == Metric::top1 ? 1 : 5,
                     measured.value * 100);
}

}  // namespace millrace
