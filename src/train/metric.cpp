#include "train/metric.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace millrace::train {
namespace {

int64_t one_sum(int64_t) { return 1; }

double mean(std::span<const double> sums, int64_t samples) {
  return sums[0] / static_cast<double>(samples);
}

void add_loss(const ScoredSample& sample, std::span<double> sums) { sums[0] += sample.loss; }

template <int64_t kPlaces>
void add_if_among(const ScoredSample& sample, std::span<double> sums) {
  sums[0] += sample.ahead < kPlaces ? 1 : 0;
}

// Of each class: samples, and what is added up over them.
int64_t two_sums_a_class(int64_t classes) { return 2 * classes; }

void add_to_class(const ScoredSample& sample, double value, std::span<double> sums) {
  double* own = sums.data() + 2 * sample.label;
  own[0] += 1;
  own[1] += value;
}

void add_if_right(const ScoredSample& sample, std::span<double> sums) {
  add_to_class(sample, sample.ahead == 0 ? 1 : 0, sums);
}

void add_loss_of_class(const ScoredSample& sample, std::span<double> sums) {
  add_to_class(sample, sample.loss, sums);
}

// The mean over the classes that have samples of the mean of each.
double mean_of_classes(std::span<const double> sums, int64_t) {
  double sum = 0;
  int64_t classes = 0;
  for (size_t i = 0; i < sums.size(); i += 2) {
    if (sums[i] == 0) continue;
    sum += sums[i + 1] / sums[i];
    ++classes;
  }
  return classes == 0 ? 0 : sum / static_cast<double>(classes);
}

constexpr MetricDefinition kMetrics[] = {
    {"loss", "loss", false, one_sum, add_loss, mean},
    {"top1", "top-1", true, one_sum, add_if_among<1>, mean},
    {"top5", "top-5", true, one_sum, add_if_among<5>, mean},
    {"recall", "mean recall", true, two_sums_a_class, add_if_right, mean_of_classes},
    {"balanced_loss", "balanced loss", false, two_sums_a_class, add_loss_of_class, mean_of_classes},
};

constexpr MetricDefinition kFaceMetrics[] = {
    {kVerificationMetric, "verification", true, nullptr, nullptr, nullptr},
    {kAucMetric, "AUC", true, nullptr, nullptr, nullptr},
    {kTarMetric, "TAR at FAR 0.001", true, nullptr, nullptr, nullptr},
};

const MetricDefinition* find_metric(std::string_view name) {
  for (const MetricDefinition& metric : kMetrics) {
    if (metric.name == name) return &metric;
  }
  for (const MetricDefinition& metric : kFaceMetrics) {
    const bool of_one_set = metric.name == kVerificationMetric && name.find('/') != name.npos;
    if (metric.name == (of_one_set ? name.substr(0, name.find('/')) : name)) return &metric;
  }
  return nullptr;
}

}  // namespace

std::span<const MetricDefinition> metrics() { return kMetrics; }

std::vector<std::string> metric_names() {
  std::vector<std::string> names;
  for (const MetricDefinition& metric : kMetrics) names.emplace_back(metric.name);
  for (const std::string& name : face_metric_names()) names.push_back(name);
  return names;
}

std::vector<std::string> face_metric_names() {
  std::vector<std::string> names;
  for (const MetricDefinition& metric : kFaceMetrics) names.emplace_back(metric.name);
  return names;
}

const MetricDefinition& metric_named(std::string_view name) {
  if (const MetricDefinition* metric = find_metric(name)) return *metric;
  const bool is_share = name == "acc" || name == "accuracy";
  const std::string close = is_share ? "top1" : nearest(std::string(name), metric_names());
  fail_input("‹metric› is '{}'; choose one of {}{}.", name, fmt::join(metric_names(), ", "),
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

MetricSums::MetricSums(int64_t classes) : classes_(classes) {
  int64_t count = 1;
  for (const MetricDefinition& metric : kMetrics) count += metric.count(classes);
  values_.resize(static_cast<size_t>(count), 0);
}

void MetricSums::add(const ScoredSample& sample) {
  values_[0] += 1;
  double* place = values_.data() + 1;
  for (const MetricDefinition& metric : kMetrics) {
    const auto count = static_cast<size_t>(metric.count(classes_));
    metric.add(sample, {place, count});
    place += count;
  }
}

double MetricSums::figure(const MetricDefinition& wanted) const {
  const double* place = values_.data() + 1;
  for (const MetricDefinition& metric : kMetrics) {
    const auto count = static_cast<size_t>(metric.count(classes_));
    if (metric.name == wanted.name) return metric.figure({place, count}, samples());
    place += count;
  }
  return 0;
}

bool Measured::better_than(const Measured& other) const {
  if (std::isnan(value) || std::isnan(other.value)) return !std::isnan(value);
  return metric_named(metric).is_share ? value > other.value : value < other.value;
}

Json to_json(const Measured& measured) {
  return {{"metric", measured.metric}, {"value", measured.value}};
}

std::optional<Measured> parse_measured(const Json& json) {
  if (!json.is_object()) return {};
  const Json name = json.value("metric", Json());
  const Json value = json.value("value", Json());
  if (!name.is_string() || !value.is_number()) return {};
  if (find_metric(name.get<std::string>()) == nullptr) return {};
  return Measured{name.get<std::string>(), value.get<double>()};
}

std::string describe(const Measured& measured) {
  const MetricDefinition* metric = find_metric(measured.metric);
  const size_t slash = measured.metric.find('/');
  const std::string title = metric == nullptr            ? measured.metric
                            : slash == std::string::npos ? std::string(metric->title)
                                                         : measured.metric.substr(slash + 1);
  return metric != nullptr && metric->is_share
             ? fmt::format("{} {:.2f} %", title, measured.value * 100)
             : fmt::format("{} {:.4f}", title, measured.value);
}

}  // namespace millrace::train
