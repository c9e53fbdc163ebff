#include "profile/calibration.h"

#include <algorithm>
#include <map>

namespace millrace::profile {
namespace {

// Through both points, or in proportion where more samples would start with less than nothing.
planner::Linear line_through(double x1, double y1, double x2, double y2) {
  if (y2 <= 0) return {};
  const double slope = x2 > x1 ? (y2 - y1) / (x2 - x1) : y2 / x2;
  const double fixed = y2 - slope * x2;
  if (fixed < 0) return {0, y2 / x2};
  if (slope < 0) return {y2, 0};
  return {fixed, slope};
}

bool takes_time(const planner::LayerWork& layer) {
  const auto counts = [](const planner::Linear& line) {
    return line.fixed > 0 || line.per_sample > 0;
  };
  if (layer.measured) return counts(layer.measured->forward) || counts(layer.measured->backward);
  const auto moves = [&](const planner::OperatorWork& work) { return counts(work.elements); };
  return std::any_of(layer.forward.begin(), layer.forward.end(), moves) ||
         std::any_of(layer.backward.begin(), layer.backward.end(), moves);
}

}  // namespace

void calibrate(planner::NetworkWork& network, const JobProfile& few, const JobProfile& many) {
  if (few.layers.size() != many.layers.size()) return;
  std::map<std::string, size_t> place;
  for (size_t i = 0; i < many.layers.size(); ++i) place[many.layers[i].name] = i;
  const auto x1 = static_cast<double>(few.samples), x2 = static_cast<double>(many.samples);
  for (planner::LayerWork& layer : network.layers) {
    const auto found = place.find(layer.name);
    if (found == place.end()) continue;
    const LayerCost &less = few.layers[found->second], &more = many.layers[found->second];
    layer.measured = {line_through(x1, less.forward_seconds, x2, more.forward_seconds),
                      line_through(x1, less.backward_seconds, x2, more.backward_seconds),
                      more.update_seconds};
  }
}

planner::NetworkWork slower(planner::NetworkWork network, double times) {
  for (planner::LayerWork& layer : network.layers) {
    if (!layer.measured) continue;
    for (planner::Linear* line : {&layer.measured->forward, &layer.measured->backward}) {
      *line = {line->fixed * times, line->per_sample * times};
    }
    layer.measured->update *= times;
  }
  return network;
}

void cut_behind_joined(const planner::NetworkWork& network, planner::PlannedJob& job) {
  for (size_t stage = 0; stage + 1 < job.stages.size(); ++stage) {
    int& end = job.stages[stage].end;
    while (end + 1 < job.stages[stage + 1].end &&
           !takes_time(network.layers.at(static_cast<size_t>(end)))) {
      ++end;
    }
    job.stages[stage + 1].begin = end;
  }
}

}  // namespace millrace::profile
