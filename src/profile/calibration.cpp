#include "profile/calibration.h"

#include <algorithm>
#include <map>

namespace millrace::profile {
namespace {

constexpr double kFloat = 4;

struct Line {
  double fixed = 0, per_sample = 0;
};

// Through both points, or in proportion where more samples would start with less than nothing.
Line line_through(double x1, double y1, double x2, double y2) {
  if (y2 <= 0) return {};
  const double slope = x2 > x1 ? (y2 - y1) / (x2 - x1) : y2 / x2;
  const double fixed = y2 - slope * x2;
  if (fixed < 0) return {0, y2 / x2};
  if (slope < 0) return {y2, 0};
  return {fixed, slope};
}

bool takes_time(const std::vector<planner::OperatorWork>& works) {
  return std::any_of(works.begin(), works.end(), [](const planner::OperatorWork& work) {
    return work.elements.fixed > 0 || work.elements.per_sample > 0;
  });
}

}  // namespace

LayerSeconds LayerSeconds::of(const JobProfile& profile) {
  LayerSeconds seconds;
  seconds.samples = static_cast<double>(profile.micro_batch);
  for (const LayerCost& layer : profile.layers) {
    seconds.layers.push_back({layer.name, layer.forward_seconds, layer.backward_seconds});
    seconds.update += layer.update_seconds;
  }
  return seconds;
}

Json to_json(const LayerSeconds& seconds) {
  Json json = {{"samples", seconds.samples}, {"update", seconds.update}};
  json["layers"] = Json::array();
  for (const LayerSeconds::Layer& layer : seconds.layers) {
    json["layers"].push_back({layer.name, layer.forward, layer.backward});
  }
  return json;
}

LayerSeconds parse_layer_seconds(const Json& json) {
  LayerSeconds seconds;
  seconds.samples = json.at("samples").get<double>();
  seconds.update = json.at("update").get<double>();
  for (const Json& layer : json.at("layers")) {
    seconds.layers.push_back(
        {layer.at(0).get<std::string>(), layer.at(1).get<double>(), layer.at(2).get<double>()});
  }
  return seconds;
}

CalibratedCosts calibrate(const planner::CostContext& context, graph::DataType precision,
                          const simulate::DeviceKind& measured_on, const LayerSeconds& few,
                          const LayerSeconds& many) {
  CalibratedCosts costs = {context.network, context.constants, context.software};
  planner::OperatorConstants& operators = costs.constants.operators;
  operators.kernel_seconds = 0;
  costs.software.slowness = 1;
  costs.software.straggling = 0;
  const double memory_rate = measured_on.memory_bandwidth * operators.memory;
  const double elements_per_second = memory_rate / static_cast<double>(graph::size_of(precision));
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < many.layers.size(); ++i) place[many.layers[i].name] = i;
  const bool comparable = few.layers.size() == many.layers.size();
  const auto work_for = [&](double less, double more) {
    const Line line = line_through(few.samples, less, many.samples, more);
    planner::OperatorWork work;
    work.elements = {line.fixed * elements_per_second, line.per_sample * elements_per_second};
    return std::vector<planner::OperatorWork>{work};
  };
  for (planner::LayerWork& layer : costs.network.layers) {
    const auto found = place.find(layer.name);
    if (found == place.end() || !comparable) continue;
    const LayerSeconds::Layer& less = few.layers[found->second];
    const LayerSeconds::Layer& more = many.layers[found->second];
    layer.forward = work_for(less.forward, more.forward);
    layer.backward = work_for(less.backward, more.backward);
  }
  const double parameters =
      planner::parameters_of(costs.network, 0, static_cast<int>(costs.network.layers.size()));
  if (parameters > 0 && many.update > 0) {
    costs.software.update_passes = many.update * memory_rate / (parameters * kFloat);
  }
  return costs;
}

void cut_behind_joined(const planner::NetworkWork& network, planner::PlannedJob& job) {
  for (size_t stage = 0; stage + 1 < job.stages.size(); ++stage) {
    int& end = job.stages[stage].end;
    const auto joined = [&] {
      const planner::LayerWork& next = network.layers.at(static_cast<size_t>(end));
      return !takes_time(next.forward) && !takes_time(next.backward);
    };
    while (end + 1 < job.stages[stage + 1].end && joined()) ++end;
    job.stages[stage + 1].begin = end;
  }
}

}  // namespace millrace::profile
