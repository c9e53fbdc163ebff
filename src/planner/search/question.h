// A question about a job on a cluster, which can be asked again with something changed.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "planner/search/search.h"

namespace millrace::planner {

// What every plan of one run has in common.
struct PlanInputs {
  NetworkWork network;
  simulate::Cluster cluster;
  CostConstants constants;
  SoftwareConstants software;
  // The network as devices run it that divide its layers; empty: they cannot. Throws InputError as
  // work_of does.
  std::function<NetworkWork(const SharedWork&)> divide = {};

  CostContext context() const { return {network, cluster, constants, software}; }

  // As the devices of this job run it.
  NetworkWork network_of(const PlannedJob& job) const;
};

Prediction predict(const PlanInputs& inputs, const PlannedJob& job);

// As search_plans, with the layers divided over up to 64 devices too (model and hybrid
// parallelism), where that is possible.
SearchOutcome search(const PlanInputs& inputs, const SearchRequest& request);

// Which plan is the fastest, or how fast the given one is. Plain data.
struct PlanQuestion {
  PlanInputs inputs;
  SearchRequest request;            // what is asked where no job is given
  std::optional<PlannedJob> given;  // one stage follows the number of devices, others are fixed

  int devices() const { return given ? given->devices() : request.devices; }
  double batch() const { return given ? given->batch : request.mini_batch(); }
};

struct PlanAnswer {
  std::optional<PlannedJob> job;  // none: nothing fits
  std::string shape;              // or why nothing fits
  double seconds_per_step = 0;
  double samples_per_second = 0;
  double memory = 0;  // of the fullest device
  bool fits = false;
};

PlanAnswer answer(const PlanQuestion& question);

// The same question, changed. Those of a device keep the samples of each device.
//
// More devices than the cluster has: it gets more machines like its own. Throws InputError naming
// `flag` where it has no network for that, or the given plan does not follow.
PlanQuestion with_devices(PlanQuestion question, int devices, std::string_view flag);
PlanQuestion with_batch(PlanQuestion question, double batch);  // samples of each device
// Bytes per second of the network between machines or, with one machine, of each link.
PlanQuestion with_bandwidth(PlanQuestion question, double bandwidth);
// All links and the network so many times as fast.
PlanQuestion with_faster_links(PlanQuestion question, double times);
PlanQuestion with_precision(PlanQuestion question, graph::DataType precision);
// Devices that reach so many times the arithmetic and so many times the memory traffic.
PlanQuestion with_faster_devices(PlanQuestion question, double arithmetic, double memory);

}  // namespace millrace::planner
