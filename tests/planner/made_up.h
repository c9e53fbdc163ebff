// Networks and clusters made up for tests, whose costs can be computed by hand.
#pragma once

#include "planner/cost/prediction.h"

namespace millrace::made_up {

// A device of 1e12 operations and 1e12 bytes per second with 1 GB.
inline simulate::Cluster cluster(int machines, int devices, double link = 1e10,
                                 double network = 1e9) {
  simulate::Cluster cluster;
  cluster.name = "made-up";
  cluster.machines = machines;
  cluster.devices_per_machine = devices;
  cluster.device = {"d", 1e9, 1e12, 1e12, 0, 1e12};
  cluster.classes["PIX"] = {link, 0};
  cluster.network = {network, 0};
  for (int i = 0; i < devices; ++i) {
    cluster.links.emplace_back(static_cast<size_t>(devices), std::string("PIX"));
    cluster.links.back()[static_cast<size_t>(i)] = std::string("X");
  }
  return cluster;
}

// Nothing but arithmetic costs time.
inline planner::CostConstants constants() {
  planner::CostConstants constants;
  constants.operators = {1, 1, 1, 1, 1, 1, 1, 0, 0};
  planner::SoftwareConstants software;
  software.name = "plain";
  software.collective_efficiency = software.transfer_efficiency = 1;
  software.overlap = software.stale_overlap = software.update_passes = software.straggling = 0;
  software.workspace_factor = 0;
  constants.software = {software};
  return constants;
}

// A layer whose forward takes `seconds` per sample on such a device, and its backward twice that,
// half of it for the weights.
inline planner::LayerWork layer(double seconds, double parameters = 0, double cut = 1) {
  planner::LayerWork layer;
  layer.name = "layer";
  layer.type = "linear";
  const planner::OperatorWork work{planner::WorkKind::linear, {0, seconds * 1e12}, {0, 1}};
  layer.forward = {work};
  layer.backward = {work, work};
  layer.backward[1].weights = true;
  layer.parameters = parameters;
  layer.backbone = true;
  layer.saved = {0, 100};
  layer.cut = {0, cut};
  return layer;
}

inline planner::NetworkWork network(const std::vector<double>& seconds, double parameters = 0,
                                    double cut = 1) {
  planner::NetworkWork network;
  network.model = "made-up";
  for (const double each : seconds) network.layers.push_back(layer(each, parameters, cut));
  return network;
}

// Stages of one device each that cut the layers evenly.
inline planner::PlannedJob straight(int stages, int layers) {
  planner::PlannedJob job;
  for (int i = 0; i < stages; ++i) {
    job.stages.push_back({{i}, i * layers / stages, (i + 1) * layers / stages});
  }
  return job;
}

}  // namespace millrace::made_up
