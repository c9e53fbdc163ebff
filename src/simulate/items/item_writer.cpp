#include "simulate/items/item_writer.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::simulate {
namespace {

JobSimulation start(const Fabric& fabric) {
  JobSimulation made;
  made.input.devices = fabric.cluster().devices();
  made.input.links = fabric.links();
  return made;
}

}  // namespace

ItemWriter::ItemWriter(const SimulatedJob& job)
    : job_(job),
      workers_(job),
      is_free_(job.steady && job.schedule(1).kind == parallel::ScheduleKind::ssp),
      made_(start(*job.fabric)),
      host_(job, made_.input.links) {
  for (int worker = 0; worker < workers_.count(); ++worker) {
    const int device = device_of(worker);
    const auto [own, added] = own_.try_emplace(device);
    if (added) {
      own->second.lane = add_lane(device, "compute", !is_free_);
      made_.compute_lanes.push_back(own->second.lane);
      const auto stage = static_cast<size_t>(workers_[worker].stage);
      made_.standing_for.push_back(static_cast<double>(job.devices[stage].size()) /
                                   static_cast<double>(job.costs.programs[stage].size()));
      add_lane(device, "background", true);
    }
    made_.devices.push_back({host_.machine_of(device),
                             device % job.fabric->cluster().devices_per_machine,
                             workers_[worker].stage});
  }
}

int ItemWriter::add_lane(int device, const char* name, bool ordered) {
  made_.input.lanes.push_back({device, name, ordered});
  return static_cast<int>(made_.input.lanes.size()) - 1;
}

int ItemWriter::message_lane(int from, int to) {
  const std::pair<int, int> key(device_of(from), device_of(to));
  const auto [found, added] = message_lanes_.try_emplace(key, -1);
  if (added) found->second = add_lane(key.first, "messages", !is_free_);
  return found->second;
}

int ItemWriter::add(std::string name, std::string category, int lane, int worker,
                    int64_t micro_batch) {
  SimulationItem item;
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
  OwnThread& own = own_.at(device);
  const int id = add(std::move(name), std::move(category), own.lane, worker, micro_batch);
  item(id).after = std::move(own.waits);
  own.waits.clear();
  own.last = id;
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
  for (auto& [device, own] : own_) {
    follow(join, own.last);
    own.waits.push_back(join);
  }
}

}  // namespace millrace::simulate
