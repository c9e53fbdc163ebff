#include "planner/cost/stage_traffic.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/cost/boundary.h"

namespace millrace::planner {

StageTraffic::StageTraffic(const StepInputs& inputs) : inputs_(inputs), job_(inputs.job) {
  input().devices = inputs.cluster.devices();
  input().links = inputs.fabric.links();
  for (int stage = 0; stage < static_cast<int>(job_.stages.size()); ++stage) {
    rings_.push_back(inputs.fabric.ring(job_.stages[stage].devices));
    costs_.push_back(
        stage_cost(inputs.network, job_, stage, inputs.cluster, inputs.constants, inputs.software));
  }
}

int StageTraffic::replicas(int stage) const {
  return static_cast<int>(job_.stages[stage].devices.size());
}

int StageTraffic::device_of(int stage, int index) const {
  const std::vector<int>& devices = job_.stages[stage].devices;
  return job_.round_robin ? devices[index % devices.size()] : devices.front();
}

int StageTraffic::compute_lane(int device) {
  return lane_of(device, "compute", job_.schedule != parallel::ScheduleKind::ssp);
}

int StageTraffic::emit_message(int from, int to, int index, double bytes, const char* name) {
  const int source = device_of(from, index), target = device_of(to, index);
  if (source == target) {
    if (inputs_.software.boundary_rate <= 0) return -1;
    const double seconds = bytes / replicas(from) / inputs_.software.boundary_rate;
    return add(fmt::format("{} {}", name, index), "transfer", compute_lane(source), seconds);
  }
  // One message after the other, as channels are.
  const int lane = lane_of(source, fmt::format("to device {}", target).c_str(),
                           job_.schedule != parallel::ScheduleKind::ssp);
  const int id = add(fmt::format("{} {}", name, index), "transfer", lane, 0);
  const LinkPath route = inputs_.fabric.between(source, target);
  if (job_.round_robin) {
    route_message(item(id), route, bytes, inputs_.software.transfer_efficiency);
    return id;
  }
  const double share = bytes / std::min(replicas(from), replicas(to));
  route_message(item(id), route, share, 1);
  double& per_byte = boundaries_[{from, to}];
  if (per_byte == 0) {
    per_byte = boundary_seconds(job_.stages[from], job_.stages[to], 1, inputs_.cluster,
                                inputs_.fabric, inputs_.software.transfer_efficiency);
  }
  item(id).rate = share / (bytes * per_byte);
  return id;
}

int StageTraffic::emit_exchanges(int stage, int lane, int behind,
                                 const std::vector<StageExchange>& exchanges) {
  for (const StageExchange& exchange : exchanges) {
    const int id = add("exchange", "collective", lane, 0);
    route_collective(item(id), ring(stage), exchange.collective, replicas(stage), exchange.bytes,
                     inputs_.software.collective_efficiency);
    follow(id, behind);
    behind = id;
  }
  return behind;
}

int StageTraffic::emit_reduce(int stage, int index, double bytes, int lane) {
  const int id = add(fmt::format("sum of gradients {}.{}", stage, index), "collective", lane, 0);
  if (bytes <= 0) return id;
  // Replicas that share the update sum only their own part.
  const bool shared = cost(stage).gather_bytes > 0;
  route_collective(item(id), ring(stage),
                   shared ? Collective::reduce_scatter : Collective::all_reduce, replicas(stage),
                   bytes, inputs_.software.collective_efficiency);
  return id;
}

int StageTraffic::emit_weights(int stage, int step, int update) {
  const int id = add(fmt::format("weights {}.{}", stage, step), "collective",
                     compute_lane(job_.stages[stage].devices.front()), 0);
  route_collective(item(id), ring(stage), Collective::all_gather, replicas(stage),
                   cost(stage).gather_bytes, inputs_.software.collective_efficiency);
  follow(id, update);
  return id;
}

}  // namespace millrace::planner
