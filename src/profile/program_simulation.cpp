#include "profile/program_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "parallel/simulation.h"
#include "planner/simulate/fabric.h"

namespace millrace {
namespace {

using Kind = CostedStep::Kind;

constexpr const char* kPhaseNames[] = {"forward", "backward", "update"};

double sum_of(const CostedSteps& steps) {
  double sum = 0;
  for (const CostedStep& step : steps) sum += step.seconds;
  return sum;
}

const CostedSteps& steps_of_work(const CostedProgram& program, Work work) {
  switch (work) {
    case Work::forward:
      return program.forward;
    case Work::backward:
    case Work::backward_input:
      return program.backward;
    case Work::backward_weights:
      return program.backward_weights;
    case Work::update:
      return program.update;
  }
  return program.update;
}

std::string_view name_in_trace(Work work) {
  return work == Work::backward_input     ? "backward to inputs"
         : work == Work::backward_weights ? "backward to weights"
                                          : name_of(work);
}

}  // namespace

// Writes the items of one job; used once.
class ProgramSimulationBuilder {
 public:
  explicit ProgramSimulationBuilder(const SimulatedJob& job) : job_(job), fabric_(*job.cluster) {
    made_.input.devices = job.cluster->devices();
    made_.input.links = fabric_.links();
    if (job.host.cores > 0) add_shared_links();
    for (size_t stage = 0; stage < job.devices.size(); ++stage) {
      first_worker_.push_back(static_cast<int>(made_.devices.size()));
      for (const int device : job.devices[stage]) add_worker(static_cast<int>(stage), device);
    }
    posted_.resize(made_.devices.size(), 0);
    if (job.schedule) routes_ = routes_between(job.routes);
    for (const LinkPath& ring : rings_of_stages()) rings_.push_back(ring);
  }

  ProgramSimulation build() {
    take_persistent_memory();
    if (!job_.schedule) {
      for (int64_t step = 0; step < job_.steps; ++step) run_whole(step);
    } else {
      const Schedule one = job_.schedule(1);
      if (is_synchronous(one.kind)) {
        for (int64_t step = 0; step < job_.steps; ++step) run_segment(one, step);
      } else {
        run_segment(job_.schedule(job_.steps), 0);
      }
    }
    return std::move(made_);
  }

 private:
  struct Message {
    int transfer = -1;
  };
  struct Collective {
    int meet = -1, done = -1;
    std::vector<int> parts;
  };

  int machine_of(int device) const { return device / job_.cluster->devices_per_machine; }

  // For each machine its cores together, its memory, and each core that devices share.
  void add_shared_links() {
    std::vector<SimulationLink>& links = made_.input.links;
    cores_begin_ = static_cast<int>(links.size());
    for (int machine = 0; machine < job_.cluster->machines; ++machine) {
      links.push_back({fmt::format("machine {} cores", machine), 1.0 * job_.host.cores});
      links.push_back({fmt::format("machine {} memory", machine), 1});
    }
    for (int machine = 0; machine < job_.cluster->machines; ++machine) {
      for (const std::vector<int>& team : job_.host.teams) {
        for (const int core : team) {
          const auto [entry, added] =
              core_links_.insert({{machine, core}, static_cast<int>(links.size())});
          if (added) links.push_back({fmt::format("machine {} cores {}", machine, core), 1});
        }
      }
    }
  }

  void add_worker(int stage, int device) {
    const auto known = lanes_.find(device);
    if (known == lanes_.end()) {
      lanes_[device] = static_cast<int>(made_.input.lanes.size());
      made_.compute_lanes.push_back(lanes_[device]);
      made_.input.lanes.push_back({device, "compute", true});
      made_.input.lanes.push_back({device, "background", true});
    }
    worker_device_.push_back(device);
    worker_stage_.push_back(stage);
    const int machine = machine_of(device);
    made_.devices.push_back({machine, device % job_.cluster->devices_per_machine, stage});
  }

  std::vector<LinkPath> rings_of_stages() const {
    std::vector<LinkPath> rings;
    for (const std::vector<int>& devices : job_.devices) rings.push_back(fabric_.ring(devices));
    return rings;
  }

  const CostedProgram& program(int worker) const {
    const int stage = worker_stage_[worker];
    return *job_.programs[stage][worker - first_worker_[stage]];
  }

  int members(int stage) const { return static_cast<int>(job_.devices[stage].size()); }

  int add(std::string name, std::string category, int lane, double seconds, int worker,
          int64_t micro_batch = -1) {
    SimulationItem item;
    item.name = std::move(name);
    item.category = std::move(category);
    item.lane = lane;
    item.seconds = seconds;
    made_.input.items.push_back(std::move(item));
    made_.trace_device.push_back(worker);
    made_.micro_batch.push_back(micro_batch);
    return static_cast<int>(made_.input.items.size()) - 1;
  }

  SimulationItem& item(int id) { return made_.input.items[static_cast<size_t>(id)]; }
  void follow(int id, int before) { item(id).after.push_back(before); }

  int lane_of(int worker) const { return lanes_.at(worker_device_[worker]); }

  // An item of a device's own thread, behind everything that it has to wait for.
  int add_own(std::string name, std::string category, int worker, double seconds, double busy,
              int64_t micro_batch) {
    const int id =
        add(std::move(name), std::move(category), lane_of(worker), 0, worker, micro_batch);
    std::vector<int>& waits = waits_[worker_device_[worker]];
    item(id).after = std::move(waits);
    waits.clear();
    last_[worker_device_[worker]] = id;
    if (seconds <= 0) return id;
    if (job_.host.cores == 0) {
      item(id).seconds = seconds;
      return id;
    }
    const int cores = cores_begin_ + 2 * machine_of(worker_device_[worker]);
    item(id).bytes = seconds;
    item(id).rate = 1;
    item(id).links = {cores};
    item(id).weights = {static_cast<double>(job_.host.threads_per_device)};
    if (!job_.host.teams.empty()) {
      const int device = worker_device_[worker];
      const auto place = static_cast<size_t>(device % job_.cluster->devices_per_machine);
      for (const int core : job_.host.teams.at(place)) {
        item(id).links.push_back(core_links_.at({machine_of(device), core}));
        item(id).weights.push_back(1);
      }
    }
    if (job_.host.busy_devices > 1) {
      item(id).links.push_back(cores + 1);
      item(id).weights.push_back(std::max(busy, seconds) / seconds / job_.host.busy_devices);
    }
    return id;
  }

  void take_persistent_memory() {
    for (size_t worker = 0; worker < worker_device_.size(); ++worker) {
      const auto number = static_cast<int>(worker);
      const int id = add_own("arena", "data", number, 0, 0, -1);
      made_.trace_device[static_cast<size_t>(id)] = -1;
      item(id).memory.push_back({worker_device_[worker], program(number).persistent_bytes, false});
    }
  }

  // Runs the steps of a phase on one device; returns its last item.
  int run_steps(const CostedSteps& steps, std::string_view name, int worker, int64_t micro_batch) {
    for (const CostedStep& step : steps) {
      const int device = worker_device_[worker];
      const char* category = kPhaseNames[static_cast<size_t>(step.phase)];
      if (step.kind == Kind::compute) {
        add_own(name.empty() ? category : std::string(name), category, worker, step.seconds,
                step.busy_seconds, micro_batch);
        continue;
      }
      if (step.kind == Kind::wait) {
        waits_[device].push_back(done_of_ticket_.at({worker, step.ticket}));
        continue;
      }
      const int done = join_collective(worker, step.bytes);
      if (step.kind == Kind::together) waits_[device].push_back(done);
      if (step.kind == Kind::post) done_of_ticket_[{worker, step.ticket}] = done;
    }
    if (!waits_[worker_device_[worker]].empty()) {
      add_own("wait", "update", worker, 0, 0, micro_batch);
    }
    return last_[worker_device_[worker]];
  }

  // Every member of a stage joins its collectives in the same order.
  int join_collective(int worker, double bytes) {
    const int stage = worker_stage_[worker];
    const int64_t number = posted_[worker]++;
    Collective& collective = collectives_[{stage, number}];
    if (collective.meet < 0) {
      collective.meet = add("meet", "communication", -1, 0, -1);
      collective.done = add("done", "communication", -1, 0, -1);
    }
    follow(collective.meet, last_[worker_device_[worker]]);
    const int count = members(stage);
    const bool local = job_.host.cores > 0 && is_in_one_machine(stage);
    if (!local && worker != first_worker_[stage]) return collective.done;
    const int part = add("gradients", "communication", lane_of(worker) + 1, 0, worker);
    route_all_reduce(item(part), rings_[stage], count, bytes, job_.host.collective_efficiency);
    if (local) {
      const double rate = item(part).rate;
      item(part).links = {cores_begin_ + 2 * machine_of(worker_device_[worker])};
      item(part).weights = {1 / rate};
    }
    follow(part, collective.meet);
    follow(collective.done, part);
    return collective.done;
  }

  bool is_in_one_machine(int stage) const {
    const std::vector<int>& devices = job_.devices[stage];
    return std::all_of(devices.begin(), devices.end(),
                       [&](int device) { return machine_of(device) == machine_of(devices[0]); });
  }

  // All devices end a step before the next one begins.
  void join_devices(int64_t step) {
    const int join = add("step", "data", -1, 0, -1);
    if (static_cast<int64_t>(made_.step_ends.size()) <= step) made_.step_ends.resize(step + 1);
    made_.step_ends[step].push_back(join);
    for (const auto& [device, id] : last_) follow(join, id);
    for (const auto& [device, lane] : lanes_) waits_[device].push_back(join);
  }

  void run_whole(int64_t step) {
    for (size_t worker = 0; worker < worker_device_.size(); ++worker) {
      const auto number = static_cast<int>(worker);
      run_steps(program(number).forward, "", number, step);
    }
    join_devices(step);
  }

  // The tasks of each device, in the order in which it runs them.
  std::map<int, std::vector<std::pair<int, Task>>> tasks_by_device(const Schedule& schedule) const {
    std::map<int, std::vector<std::pair<int, int>>> rows;  // (row, worker) of each device
    for (size_t worker = 0; worker < worker_device_.size(); ++worker) {
      const int stage = worker_stage_[worker];
      const int member = static_cast<int>(worker) - first_worker_[stage];
      const int row = schedule.row_of(stage, schedule.round_robin ? member : 0);
      rows[worker_device_[worker]].emplace_back(row, static_cast<int>(worker));
    }
    Costs costs;
    costs.task = [&](int stage, const Task& task) {
      return sum_of(steps_of_work(*job_.programs[stage][0], task.work));
    };
    std::optional<Simulation> free;
    if (!schedule.fixed_order) free = simulate(schedule, job_.routes.channels, costs);
    std::map<int, std::vector<std::pair<int, Task>>> tasks;
    for (const auto& [device, own] : rows) {
      std::vector<RowTask> order;
      if (own.size() > 1) {
        std::vector<int> numbers;
        for (const auto& entry : own) numbers.push_back(entry.first);
        order = interleave(schedule, numbers, job_.routes.channels);
      } else if (free) {
        for (const SimulatedTask& task : free->rows[own[0].first]) {
          order.push_back({own[0].first, task.task});
        }
      } else {
        for (const Task& task : schedule.rows[own[0].first].tasks) {
          order.push_back({own[0].first, task});
        }
      }
      for (const RowTask& next : order) {
        const auto entry = std::find_if(own.begin(), own.end(),
                                        [&](const auto& one) { return one.first == next.row; });
        tasks[device].emplace_back(entry->second, next.task);
      }
    }
    return tasks;
  }

  void run_segment(const Schedule& schedule, int64_t first_step) {
    messages_.clear();
    segment_ = first_step;
    for (const auto& [device, tasks] : tasks_by_device(schedule)) {
      for (const auto& [worker, task] : tasks) run_task(schedule, worker, task);
    }
    if (static_cast<int64_t>(made_.step_ends.size()) < first_step + schedule.steps) {
      made_.step_ends.resize(first_step + schedule.steps);
    }
    join_devices(first_step + schedule.steps - 1);
  }

  void run_task(const Schedule& schedule, int worker, const Task& task) {
    const CostedProgram& costed = program(worker);
    const bool forward = task.work == Work::forward;
    const bool backward = task.work == Work::backward || task.work == Work::backward_input;
    if (forward || backward) receive(worker, backward, task.micro_batch);
    const int before = static_cast<int>(made_.input.items.size());
    const int last = run_steps(steps_of_work(costed, task.work), name_in_trace(task.work), worker,
                               task.micro_batch);
    if (static_cast<int>(made_.input.items.size()) > before) {
      count_memory(worker, task.work, before, last);
    }
    if (forward || backward) send(worker, backward, task.micro_batch);
    if (!forward || worker_stage_[worker] + 1 != schedule.stages) return;
    const int64_t step = segment_ + task.micro_batch / schedule.micro_batches;
    if (static_cast<int64_t>(made_.step_ends.size()) <= step) made_.step_ends.resize(step + 1);
    made_.step_ends[step].push_back(last);
  }

  // `first` may belong to another lane: the first of this device's own is what counts.
  void count_memory(int worker, Work work, int first, int last) {
    const int device = worker_device_[worker];
    const CostedProgram& costed = program(worker);
    while (item(first).lane != lane_of(worker)) ++first;
    item(first).memory.push_back({device, costed.scratch_bytes, false});
    if (work == Work::forward) item(first).memory.push_back({device, costed.saved_bytes, false});
    item(last).memory.push_back({device, -costed.scratch_bytes, true});
    if (work == Work::backward || work == Work::backward_weights) {
      item(last).memory.push_back({device, -costed.saved_bytes, true});
    }
  }

  double copy_seconds(const Route& route, bool sends) const {
    if (job_.copy_seconds) return job_.copy_seconds(route, sends);
    return static_cast<double>(route.bytes) / job_.host.copy_bytes_per_second;
  }

  bool is_of(const Route& route, int worker, bool sends, bool gradients, int64_t m) const {
    const int stage = worker_stage_[worker];
    const int member = worker - first_worker_[stage];
    const bool own = sends ? route.from_stage() == stage && route.from_member == member
                           : route.to_stage() == stage && route.to_member == member;
    return own && route.gradient == gradients && carries(route, job_.routes, m);
  }

  // Counters of a route: the sender's one buffer, the receiver's slots.
  std::pair<int, int> counters_of(size_t route) {
    const auto known = counters_.find(route);
    if (known != counters_.end()) return known->second;
    std::vector<int>& counters = made_.input.counters;
    const auto first = static_cast<int>(counters.size());
    counters.push_back(1);
    counters.push_back(static_cast<int>(routes_[route].slots));
    return counters_[route] = {first, first + 1};
  }

  int transfer_of(size_t number, int64_t micro_batch) {
    Message& message = messages_[{number, micro_batch}];
    if (message.transfer >= 0) return message.transfer;
    const Route& route = routes_[number];
    const int from = job_.devices[route.from_stage()][route.from_member];
    const int to = job_.devices[route.to_stage()][route.to_member];
    const int sender = first_worker_[route.from_stage()] + route.from_member;
    const int id = add(route.name(), "communication", -1, 0, sender, micro_batch);
    const LinkPath path = fabric_.between(from, to);
    route_message(item(id), path, static_cast<double>(route.bytes), job_.host.message_efficiency);
    if (job_.host.cores > 0 && machine_of(from) == machine_of(to)) {
      item(id).weights.assign(item(id).links.size(), 1);
      item(id).links.push_back(cores_begin_ + 2 * machine_of(to));
      item(id).weights.push_back(1 / item(id).rate);
    }
    const auto [sending, receiving] = counters_of(number);
    item(id).acquire = {receiving};
    item(id).release = {sending};
    return message.transfer = id;
  }

  void receive(int worker, bool gradients, int64_t micro_batch) {
    for (size_t i = 0; i < routes_.size(); ++i) {
      if (!is_of(routes_[i], worker, false, gradients, micro_batch)) continue;
      const double seconds = copy_seconds(routes_[i], false);
      const int transfer = transfer_of(i, micro_batch);
      const int id = add_own("receive", gradients ? "gradients" : "activations", worker, seconds,
                             seconds, micro_batch);
      follow(id, transfer);
      item(id).release = {counters_of(i).second};
    }
  }

  void send(int worker, bool gradients, int64_t micro_batch) {
    for (size_t i = 0; i < routes_.size(); ++i) {
      if (!is_of(routes_[i], worker, true, gradients, micro_batch)) continue;
      const double seconds = copy_seconds(routes_[i], true);
      const int id = add_own("send", "room", worker, seconds, seconds, micro_batch);
      item(id).acquire = {counters_of(i).first};
      follow(transfer_of(i, micro_batch), id);
    }
  }

  const SimulatedJob& job_;
  const Fabric fabric_;
  int cores_begin_ = 0;
  std::map<std::pair<int, int>, int> core_links_;  // by machine and core
  int64_t segment_ = 0;                            // the first step of what is being written
  std::vector<int> worker_device_, worker_stage_, first_worker_;
  std::map<int, int> lanes_;               // of each device: computing; one more: background
  std::map<int, std::vector<int>> waits_;  // what the next item of a device has to follow
  std::map<int, int> last_;                // item of each device
  std::vector<LinkPath> rings_;            // of each stage
  std::vector<Route> routes_;
  std::map<size_t, std::pair<int, int>> counters_;
  std::map<std::pair<size_t, int64_t>, Message> messages_;
  std::vector<int64_t> posted_;  // collectives of each worker
  std::map<std::pair<int, int64_t>, Collective> collectives_;
  std::map<std::pair<int, int64_t>, int> done_of_ticket_;
  ProgramSimulation made_;
};

ProgramSimulation build_simulation(const SimulatedJob& job) {
  return ProgramSimulationBuilder(job).build();
}

SimulatedSteps steps_of(const ProgramSimulation& simulation, const SimulationResult& result) {
  SimulatedSteps steps;
  double before = 0;
  for (const std::vector<int>& ends : simulation.step_ends) {
    double end = before;
    for (const int id : ends) end = std::max(end, result.end[static_cast<size_t>(id)]);
    steps.seconds.push_back(end - before);
    before = end;
  }
  std::vector<double> sorted = steps.seconds;
  if (sorted.size() > 1) sorted.erase(sorted.begin());
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty()) {
    steps.median = (sorted[(sorted.size() - 1) / 2] + sorted[sorted.size() / 2]) / 2;
  }
  double idle = 0;
  for (const int lane : simulation.compute_lanes) idle += result.idle_share(lane);
  steps.bubble = idle / static_cast<double>(std::max<size_t>(1, simulation.compute_lanes.size()));
  return steps;
}

}  // namespace millrace
