#include "profile/prediction_here.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/median.h"
#include "comm/texts.h"
#include "planner/published/left_out.h"
#include "profile/costs_text.h"
#include "train/pipeline.h"
#include "train/plan.h"
#include "train/stage_options.h"

namespace millrace::profile {
namespace {

constexpr int64_t kUsualSteps = 5;
constexpr int64_t kMostSteps = 32;  // that run into each other

int64_t resident_now() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

// The devices of the job as a cluster with a machine for each process.
struct Surroundings {
  simulate::Cluster cluster;
  std::vector<std::vector<int>> devices;  // of each stage

  explicit Surroundings(const parallel::Plan& plan, int processes) {
    std::vector<std::vector<parallel::DeviceId>> by_node(static_cast<size_t>(processes));
    for (const parallel::DeviceId& id : plan.devices())
      by_node[static_cast<size_t>(id.node)].push_back(id);
    size_t most = 1;
    for (const auto& list : by_node) most = std::max(most, list.size());
    cluster.name = "here";
    cluster.machines = processes;
    cluster.devices_per_machine = static_cast<int>(most);
    for (const parallel::Placement& stage : plan.stages) {
      devices.emplace_back();
      for (const parallel::DeviceId& id : stage.devices) {
        const auto& list = by_node[static_cast<size_t>(id.node)];
        const auto place = std::find(list.begin(), list.end(), id) - list.begin();
        devices.back().push_back(id.node * static_cast<int>(most) + static_cast<int>(place));
      }
    }
    cluster.links = simulate::equal_links(cluster.devices_per_machine, "MEM");
  }

  int most_devices() const { return cluster.devices_per_machine; }
};

// What a job's stages send each other, and in which order they work.
void add_pipeline(simulate::SimulatedJob& simulated, const parallel::Plan& plan,
                  const train::PipelineLayout& layout,
                  const std::function<double(const parallel::Route&, bool sends)>& copy_seconds) {
  simulated.channels = layout.request().channels;
  simulated.costs.messages =
      simulate::messages_of(parallel::routes_between(layout.request()), copy_seconds);
  simulated.schedule = [&plan](int64_t steps) { return train::schedule_of(plan, steps); };
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// How many devices have a thread on the most crowded core of each.
std::vector<int> crowding_of(const std::vector<std::vector<int>>& teams) {
  std::map<int, int> devices_of_core;
  for (const std::vector<int>& team : teams) {
    for (const int core : team) ++devices_of_core[core];
  }
  std::vector<int> crowding;
  for (const std::vector<int>& team : teams) {
    int most = 1;
    for (const int core : team) most = std::max(most, devices_of_core[core]);
    crowding.push_back(most);
  }
  return crowding;
}

// The costs without what devices on one core took from each other, which the simulation adds.
simulate::CostedProgram costs_of(const MeasuredProgram& measured, int crowding) {
  std::vector<simulate::InstructionCost> costs = measured.costs;
  for (simulate::InstructionCost& cost : costs) {
    cost.busy_seconds = std::max(cost.seconds, cost.busy_seconds / crowding);
  }
  simulate::CostedProgram program = simulate::cost_program(*measured.program, costs);
  if (measured.carry_seconds > 0) {
    simulate::CostedSteps& updates = program.tasks[parallel::Work::update];
    simulate::CostedSteps& last =
        updates.empty() ? program.tasks[parallel::Work::backward] : updates;
    last.push_back({.phase = graph::Phase::update,
                    .seconds = measured.carry_seconds,
                    .busy_seconds = measured.carry_seconds});
  }
  return program;
}

// The bytes of images and labels that this process is fed with at a time.
int64_t feed_bytes(const train::StepSettings& job, const train::Engine& engine) {
  int64_t rows = 0;
  for (const RowRange& range : engine.rows()) rows += range.end - range.begin;
  return rows * job.options.channels * job.options.image * job.options.image *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace

namespace {

// What is known before the job is simulated.
struct KnownCosts {
  std::vector<MeasuredProgram> programs;  // of this process
  ExchangeSpeed local;
  std::optional<ExchangeSpeed> between = {};  // processes
};

// The costs of all processes: each sends its own to the others.
std::vector<CostsOfMember> share_costs(const std::vector<CostsOfMember>& own, comm::Group* ranks) {
  if (ranks == nullptr) return own;
  std::vector<CostsOfMember> all;
  for (const std::string& text : comm::gather_texts(*ranks, costs_to_text(own))) {
    for (CostsOfMember& one : costs_from_text(text)) all.push_back(std::move(one));
  }
  return all;
}

train::DeviceReport memory_of(const train::StepSettings& job, const MeasuredProgram& one) {
  train::DeviceReport report;
  report.id = parallel::to_string(
      job.plan.stages[static_cast<size_t>(one.stage)].devices[static_cast<size_t>(one.member)]);
  report.stage = one.stage;
  report.arena_bytes = one.program->arena_bytes;
  report.breakdown = one.program->breakdown;
  return report;
}

void estimate_error(HerePrediction& prediction, const std::vector<CostsOfMember>& costs) {
  constexpr double kShare = 0.75;
  for (const CostsOfMember& one : costs) {
    prediction.round_spread = std::max(prediction.round_spread, one.spread);
  }
  prediction.checked_error = quantile(planner::checked_errors(), kShare);
  prediction.error_estimate = std::hypot(prediction.round_spread, prediction.checked_error);
}

void simulate_job(const train::TrainJob& job, train::Engine& engine, const KnownCosts& known,
                  HerePrediction& prediction) {
  Surroundings here(job.plan, engine.ranks());
  const int local_devices = here.cluster.devices_per_machine;
  std::set<const backend::Device*> own_devices;
  for (const auto& worker : engine.workers()) own_devices.insert(worker->device);
  const auto teams =
      backend::cores_of_devices(comm::launch_place(), static_cast<int>(own_devices.size()),
                                job.threads, job.oversubscribe)
          .teams;
  const std::vector<int> crowding = crowding_of(teams);
  std::vector<CostsOfMember> costs;
  for (const MeasuredProgram& one : known.programs) {
    const int device =
        here.devices[static_cast<size_t>(one.stage)][static_cast<size_t>(one.member)];
    costs.push_back({one.stage, one.member,
                     costs_of(one, crowding[static_cast<size_t>(device % local_devices)]),
                     one.copies, one.round_spread()});
    prediction.resident_bytes += one.program->arena_bytes;
    prediction.devices.push_back(memory_of(job, one));
  }
  costs = share_costs(costs, engine.rank_group());
  estimate_error(prediction, costs);

  here.cluster.classes["MEM"] = known.local.message;
  here.cluster.device.memory_bandwidth = known.local.message.bandwidth;
  if (known.between) here.cluster.network = known.between->message;
  const ExchangeSpeed& sums = known.between ? *known.between : known.local;
  simulate::SimulatedJob simulated;
  const simulate::Fabric fabric(here.cluster);
  simulated.fabric = &fabric;
  simulated.costs.collective_efficiency = sums.collective_rate / sums.message.bandwidth;
  simulated.costs.packing_rate = known.local.message.bandwidth;
  simulated.host.cores = backend::available_cores();
  simulated.host.threads_per_device = engine.device().threads();
  simulated.host.busy_devices = local_devices;
  if (*std::max_element(crowding.begin(), crowding.end()) > 1) simulated.host.teams = teams;
  simulated.devices = here.devices;
  std::map<std::string, double> copies;
  auto& programs = simulated.costs.programs;
  for (const auto& stage : here.devices) programs.emplace_back(stage.size(), nullptr);
  for (const CostsOfMember& one : costs) {
    programs[static_cast<size_t>(one.stage)][static_cast<size_t>(one.member)] = &one.program;
    copies.insert(one.copies.begin(), one.copies.end());
  }
  simulated.steps = std::min(job.steps > 0 ? job.steps : kUsualSteps, kMostSteps);
  if (!job.plan.runs_whole()) {
    add_pipeline(simulated, job.plan, engine.layout(),
                 [&](const parallel::Route& route, bool sends) {
                   return copies.at(copy_key(route, sends));
                 });
  }
  prediction.simulation = simulate::build_simulation(simulated);
  prediction.result = simulate::simulate(prediction.simulation.input);
  prediction.steps = simulate::steps_of(prediction.simulation, prediction.result);
  prediction.step_seconds = prediction.steps.median;
  prediction.samples_per_second = static_cast<double>(job.options.batch) / prediction.step_seconds;
  prediction.devices = train::gather_reports(engine, prediction.devices);
}

}  // namespace

HerePrediction predict_here(const train::TrainJob& job, const MeasureOptions& options,
                            train::TrainingObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  train::Engine engine(job, train::Purpose::training, observer);
  HerePrediction prediction;
  prediction.resident_bytes = resident_now() + feed_bytes(job, engine);
  engine.start(job.seed);
  // Each process measures its own programs while the others do the same.
  comm::Group* ranks = engine.rank_group();
  if (ranks != nullptr) ranks->barrier();
  KnownCosts known;
  known.programs = measure_programs(engine, options);
  known.local = measure_local_exchange(Surroundings(job.plan, engine.ranks()).most_devices());
  if (ranks != nullptr) known.between = measure_exchange(*ranks);
  prediction.profile = describe_measured(job, engine, known.programs, options.rounds);
  prediction.profile.exchange = known.local;
  simulate_job(job, engine, known, prediction);
  prediction.profile_seconds = seconds_since(start);
  engine.finish();
  return prediction;
}

HerePrediction predict_here(const train::TrainJob& job, const JobProfile& profile,
                            std::string_view file, train::TrainingObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  train::Engine engine(job, train::Purpose::training, observer);
  if (engine.rank_group() != nullptr) {
    fail_input("‹profile› predicts jobs of one process; leave out mpirun, or measure anew.");
  }
  HerePrediction prediction;
  prediction.resident_bytes = resident_now() + feed_bytes(job, engine);
  prediction.profile = profile;
  simulate_job(job, engine, {programs_of(profile, job, engine, file), profile.exchange},
               prediction);
  prediction.profile_seconds = seconds_since(start);
  engine.finish();
  return prediction;
}

namespace {

// Seconds of a step by the simulator, each instruction by formula. Devices that are more than the
// cores share them evenly.
double step_seconds_by_formula(const train::PlannedPrograms& planned) {
  constexpr double kLatency = 5e-6;  // seconds until a device hears of another
  const parallel::Plan& plan = planned.job.plan;
  int processes = 1;
  for (const parallel::DeviceId& id : plan.devices()) processes = std::max(processes, id.node + 1);
  Surroundings here(plan, processes);
  // A message is read and written.
  const double rate = planned.speed.bytes_per_second / 2;
  here.cluster.classes["MEM"] = {rate, kLatency};
  here.cluster.network = here.cluster.classes["MEM"];
  here.cluster.device.memory_bandwidth = rate;
  const double wanted = static_cast<double>(here.most_devices()) * planned.threads;
  const double crowding = std::max(1.0, wanted / backend::available_cores());
  std::map<const compile::Program*, simulate::CostedProgram> costed;
  simulate::SimulatedJob simulated;
  for (const auto& members : planned.programs) {
    simulated.costs.programs.emplace_back();
    for (const compile::Program* program : members) {
      simulate::CostedProgram& one = costed[program];
      if (one.tasks[parallel::Work::forward].empty()) {
        std::vector<simulate::InstructionCost> costs;
        for (const compile::Instruction& instruction : program->instructions) {
          const double seconds = train::formula_seconds(instruction, planned.speed) * crowding;
          costs.push_back({seconds, seconds});
        }
        one = simulate::cost_program(*program, costs);
      }
      simulated.costs.programs.back().push_back(&one);
    }
  }
  const simulate::Fabric fabric(here.cluster);
  simulated.fabric = &fabric;
  simulated.devices = here.devices;
  simulated.steps = kUsualSteps;
  if (planned.layout != nullptr) {
    add_pipeline(simulated, plan, *planned.layout, [&](const parallel::Route& route, bool) {
      return static_cast<double>(route.bytes) / rate;
    });
  }
  const simulate::JobSimulation simulation = simulate::build_simulation(simulated);
  return simulate::steps_of(simulation, simulate::simulate(simulation.input)).median;
}

}  // namespace

Json describe_plan(const train::TrainJob& job, train::TrainingObserver& observer,
                   bool with_programs) {
  return train::describe_plan(job, observer,
                              {.programs = with_programs, .step_seconds = step_seconds_by_formula});
}

Json to_json(const HerePrediction& prediction) {
  Json json;
  json["source"] = "profile";
  json["predicted_step_seconds"] = prediction.step_seconds;
  json["predicted_seconds_per_step"] = prediction.step_seconds;  // as other plans name it
  json["predicted_samples_per_second"] = prediction.samples_per_second;
  json["error_estimate"] = prediction.error_estimate;
  json["error_estimate_from"] = {
      {"round_spread", prediction.round_spread},
      {"checked_predictions", prediction.checked_error},
      {"from",
       "the root of squares of how far the profile's rounds lie apart and of the error that three "
       "quarters of the checked predictions stay below (bench/prediction.py)"}};
  json["bubble"] = prediction.steps.bubble;
  json["process_rss_bytes"] = prediction.resident_bytes;
  json["profile_seconds"] = prediction.profile_seconds;
  json["devices"] = Json::array();
  for (const train::DeviceReport& report : prediction.devices) {
    Json device = train::to_json(report);
    device.erase("resident_bytes");
    device.erase("communication");
    json["devices"].push_back(std::move(device));
  }
  json["links"] = Json::array();
  const auto steps = static_cast<double>(std::max<size_t>(1, prediction.steps.seconds.size()));
  for (size_t i = 0; i < prediction.simulation.input.links.size(); ++i) {
    const simulate::SimulationLink& link = prediction.simulation.input.links[i];
    const double bytes = prediction.result.link_bytes[i];
    const bool counts_bytes = link.name.find("cores") == std::string::npos &&
                              link.name.find(" memory") == std::string::npos;
    if (bytes <= 0 || !counts_bytes) continue;
    json["links"].push_back(
        {{"name", link.name}, {"bytes_per_step", bytes / steps}, {"bandwidth", link.bandwidth}});
  }
  return json;
}

}  // namespace millrace::profile
