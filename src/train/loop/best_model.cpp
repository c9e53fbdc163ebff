#include "train/loop/best_model.h"

#include <fmt/format.h>

namespace millrace::train {

bool BestModel::look(const EvaluationReport& report) {
  const Measured& measured = report.figure(metric_);
  ++waited_;
  if (best_ && !measured.better_than(*best_)) return false;
  best_ = measured;
  best_step_ = report.step;
  waited_ = 0;
  return true;
}

std::string BestModel::describe() const {
  return fmt::format("No better figure in {} evaluation{}: the best was {} at step {}.", waited_,
                     waited_ == 1 ? "" : "s", best_ ? train::describe(*best_) : "none", best_step_);
}

Json BestModel::record() const {
  if (!best_) return {};
  Json json = to_json(*best_);
  json["step"] = best_step_;
  json["waited"] = waited_;
  return json;
}

void BestModel::resume(const Json& record) {
  const std::optional<Measured> best = parse_measured(record);
  if (!best || best->metric != metric_) return;
  best_ = best;
  const auto number = [&](const char* name) {
    const Json value = record.value(name, Json());
    return value.is_number_integer() ? value.get<int64_t>() : 0;
  };
  best_step_ = number("step");
  waited_ = number("waited");
}

}  // namespace millrace::train
