// By which figure of an evaluation a model is judged.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "train/observer.h"

namespace millrace {

enum class Metric : uint8_t { top1, top5, loss };

std::string_view name_of(Metric metric);
std::vector<std::string> metric_names();
// Throws InputError naming --metric.
Metric parse_metric(const std::string& name);

// A figure of one evaluation. Plain data.
struct Measured {
  Metric metric = Metric::top1;
  double value = 0;

  // Whether it is better than another of the same metric: a smaller loss, a larger share.
  bool better_than(const Measured& other) const;
};

Measured measure(const EvaluationReport& report, Metric metric);

// {"metric": "top1", "value": 0.93}, and nothing for what is none.
Json to_json(const Measured& measured);
std::optional<Measured> parse_measured(const Json& json);

// "top-1 93.00 %", "loss 0.1234".
std::string describe(const Measured& measured);

}  // namespace millrace
