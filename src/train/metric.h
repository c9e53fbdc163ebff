// The figures of an evaluation: one table of what there is to tell of a classifier, and one of what
// pairs of faces tell of embeddings.
//
// A metric of classifiers gathers sums over samples, which add up over devices and processes; its
// figure is a function of the sums. A new metric is a row of the table in metric.cpp: evaluations,
// --metric, files and what is printed follow from it. Figures of faces are those of all sets
// together under the metric's own name, and of each as "verification/lfw".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace millrace::train {

// What a model made of one sample.
struct ScoredSample {
  int64_t label = 0;
  int64_t told = 0;   // the class of the largest logit
  int64_t ahead = 0;  // classes that come before the label's
  double loss = 0;    // the plain cross-entropy
};

struct MetricDefinition {
  std::string_view name;   // in flags and files
  std::string_view title;  // for people
  bool is_share;           // the larger the better, told in percent; otherwise the smaller
  // None of these for figures of faces.
  int64_t (*count)(int64_t classes);  // of sums
  void (*add)(const ScoredSample& sample, std::span<double> sums);
  double (*figure)(std::span<const double> sums, int64_t samples);
};

std::span<const MetricDefinition> metrics();
std::vector<std::string> metric_names();  // of both tables
// Of classifiers and of faces, of one set too. Throws InputError naming --metric.
const MetricDefinition& metric_named(std::string_view name);

inline constexpr std::string_view kVerificationMetric = "verification";
inline constexpr std::string_view kAucMetric = "auc";
inline constexpr std::string_view kTarMetric = "tar";
std::vector<std::string> face_metric_names();
inline bool is_of_faces(const MetricDefinition& metric) { return metric.add == nullptr; }

// The sums of all metrics.
class MetricSums {
 public:
  explicit MetricSums(int64_t classes);

  void add(const ScoredSample& sample);
  // Samples and sums, to be added up with those of others.
  std::span<double> values() { return values_; }
  int64_t samples() const { return static_cast<int64_t>(values_.front()); }
  double figure(const MetricDefinition& metric) const;

 private:
  int64_t classes_;
  std::vector<double> values_;  // the samples, then the sums of each metric
};

// A figure of one evaluation. Plain data.
struct Measured {
  std::string metric = {};
  double value = 0;

  // Whether it is better than another of the same metric; any number is better than none.
  bool better_than(const Measured& other) const;
  bool operator==(const Measured&) const = default;
};

// {"metric": "top1", "value": 0.93}, and nothing for what is none.
Json to_json(const Measured& measured);
std::optional<Measured> parse_measured(const Json& json);

// "top-1 93.00 %", "loss 0.1234".
std::string describe(const Measured& measured);

}  // namespace millrace::train
