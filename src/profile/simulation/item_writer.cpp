#include "profile/simulation/item_writer.h"

#include <algorithm>

namespace millrace::profile {
namespace {

ProgramSimulation start(const planner::Cluster& cluster, const planner::Fabric& fabric) {
  ProgramSimulation made;
  made.input.devices = cluster.devices();
  made.input.links = fabric.links();
  return made;
}

}  // namespace

ItemWriter::ItemWriter(const SimulatedJob& job)
    : job_(job),
      fabric_(*job.cluster),
      workers_(job),
      made_(start(*job.cluster, fabric_)),
      host_(job, made_.input.links) {
  for (int worker = 0; worker < workers_.count(); ++worker) {
    const int device = device_of(worker);
    if (!lanes_.contains(device)) add_lanes(device);
    made_.devices.push_back({host_.machine_of(device), device % job.cluster->devices_per_machine,
                             workers_[worker].stage});
  }
}

void ItemWriter::add_lanes(int device) {
  std::vector<planner::SimulationLane>& lanes = made_.input.lanes;
  lanes_[device] = static_cast<int>(lanes.size());
  made_.compute_lanes.push_back(lanes_[device]);
  lanes.push_back({device, "compute", true});
  lanes.push_back({device, "background", true});
}

int ItemWriter::add(std::string name, std::string category, int lane, int worker,
                    int64_t micro_batch) {
  planner::SimulationItem item;
  item.name = std::move(name);
  item.category = std::move(category);
  item.lane = lane;
  made_.input.items.push_back(std::move(item));
  made_.trace_device.push_back(worker);
  made_.micro_batch.push_back(micro_batch);
  return count() - 1;
}

int ItemWriter::add_own(std::string name, std::string category, int worker, double seconds,
                        double busy, int64_t micro_batch) {
  const int device = device_of(worker);
  const int id =
      add(std::move(name), std::move(category), compute_lane(worker), worker, micro_batch);
  std::vector<int>& waits = waits_[device];
  item(id).after = std::move(waits);
  waits.clear();
  last_[device] = id;
  host_.occupy(item(id), device, seconds, busy);
  return id;
}

int ItemWriter::add_counter(int value) {
  made_.input.counters.push_back(value);
  return static_cast<int>(made_.input.counters.size()) - 1;
}

void ItemWriter::end_step(int64_t step, int id) {
  const auto number = static_cast<size_t>(step);
  made_.step_ends.resize(std::max(made_.step_ends.size(), number + 1));
  made_.step_ends[number].push_back(id);
}

void ItemWriter::join_devices(int64_t step) {
  const int join = add("step", "data", -1, -1);
  end_step(step, join);
  for (const auto& [device, id] : last_) follow(join, id);
  for (const auto& [device, lane] : lanes_) waits_[device].push_back(join);
}

}  // namespace millrace::profile
