#include "cli/plan_here.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/here_report.h"
#include "cli/progress.h"
#include "cli/subprocess.h"
#include "planner/cluster/processor_machine.h"
#include "profile/calibration.h"
#include "runtime/cores.h"
#include "train/plan.h"

namespace millrace {
namespace {

constexpr int kMostFinalists = 256;
constexpr int64_t kSteps = 16;         // to simulate, where the user names none
constexpr double kClose = 0.05;        // of the best: measured again
constexpr size_t kLater = 4;           // every fourth finalist is a neighbour of the best
constexpr size_t kMostContenders = 3;  // that are measured again
constexpr int kAgain = 2;              // times
constexpr double kFewer = 4;           // samples, of the first measurement of the layers
constexpr double kSurelyFits = 0.5;    // of the free memory, by formula

// Tells standard error how far the measurements have come.
class MeasuringProgress {
 public:
  explicit MeasuringProgress(size_t expected) : expected_(expected) {}

  void expect(size_t more) { expected_ += more; }
  void done(const std::string& what) {
    ++done_;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const auto left = static_cast<double>(expected_ - std::min(done_, expected_));
    fmt::print(stderr, "{} of {}, about {} left: {}\n", done_, expected_,
               format_duration(elapsed.count() / static_cast<double>(done_) * left), what);
  }

 private:
  size_t expected_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Those that do not fit stand last.
bool any_fits(const std::vector<HereCandidate>& candidates) {
  return !candidates.empty() && candidates.front().fits;
}

class HerePlanner {
 public:
  HerePlanner(const CLI::App& command, const ClusterFlags& flags, const CheckFlags& check,
              const JobFlags& job_flags)
      : flags_(flags), check_(check), job_flags_(job_flags) {
    const int given = command.count("--devices") > 0 ? job_flags.plan.devices : 0;
    if (command.count("--devices") > 0 && given < 1) {
      fail_input("--devices is {}; give at least 1.", given);
    }
    batch_ = flags.global_batch > 0 ? flags.global_batch : job_flags.batch * std::max(1, given);
    set_counts(given);
    machine_ =
        parse_cluster(in_child([&] { return describe(described_cluster(flags.cluster)).dump(); }),
                      "this machine");
    SearchSetup setup = search_setup(command, flags, job_flags, divided(machine_, counts_.back()));
    inputs_ = std::move(setup.inputs);
    request_.search = setup.request;
    request_.search.global_batch = static_cast<double>(batch_);
    request_.synchronise_batch_norm = job_flags.plan.synchronise_batch_norm;
    request_.memory = static_cast<double>(available_memory());
    if (command.count("--schedule") > 0) {
      request_.schedule = parse_schedule(job_flags.plan.schedule);
    }
  }

  HereOutcome run() {
    if (!flags_.no_measure) calibrate_costs();
    const bool spares_computing = !request_.search.recompute;
    if (spares_computing) request_.search.recompute = false;
    HereCandidates candidates = gather();
    if (spares_computing && !any_fits(candidates.list)) {
      request_.search.recompute = {};
      candidates = gather();
    }
    HereOutcome outcome;
    outcome.global_batch = static_cast<double>(batch_);
    outcome.tried = candidates.tried;
    outcome.others = std::move(candidates.list);
    if (!flags_.no_measure && any_fits(outcome.others)) measure(outcome);
    return outcome;
  }

  void write_trace(const MeasuredPlan& plan) const {
    predict_in_child(job_of(plan.candidate), {.rounds = check_.rounds}, flags_.trace);
  }

  const PlanInputs& inputs() const { return inputs_; }

  PlanInputs inputs_for(int devices) const {
    PlanInputs inputs = inputs_;
    inputs.cluster = cluster_of(devices);
    return inputs;
  }

 private:
  void set_counts(int given) {
    const int cores = available_cores();
    if (given > 0) {
      if (batch_ % given != 0) {
        fail_input(
            "--global-batch is {}, which cannot be divided over {} devices; give a multiple.",
            batch_, given);
      }
      counts_ = {given};
      return;
    }
    for (int count = 1; count <= cores; ++count) {
      const bool room = job_flags_.oversubscribe || count * job_flags_.threads <= cores;
      if (cores % count == 0 && batch_ % count == 0 && room) counts_.push_back(count);
    }
    if (counts_.empty()) counts_ = {1};
  }

  // The machine as so many devices.
  Cluster cluster_of(int devices) const {
    Cluster cluster = divided(machine_, devices);
    const int shares =
        job_flags_.threads > 0 ? std::max(1, available_cores() / job_flags_.threads) : devices;
    cluster.device = divided(machine_, shares).device;
    cluster.device.memory_bytes = inputs_.cluster.device.memory_bytes;
    return cluster;
  }

  TrainJob whole_job(double samples) const {
    JobFlags flags = job_flags_;
    flags.plan = {};
    flags.batch = std::max<int64_t>(1, std::llround(samples));
    TrainJob job = to_job(flags);
    job.steps = 1;
    check(job);
    return job;
  }

  LayerSeconds measure_layers(const TrainJob& job) const {
    return parse_layer_seconds(Json::parse(in_child([&] {
      ProgressPrinter messages(true);
      return to_json(LayerSeconds::of(profile_job(job, {.rounds = check_.rounds}, messages)))
          .dump();
    })));
  }

  // The whole network on one device, with few samples and with all of them.
  void calibrate_costs() {
    const Cluster cluster = cluster_of(1);
    const double most = static_cast<double>(batch_);
    fmt::print(stderr, "Measuring the layers of {} here.\n", inputs_.network.model);
    try {
      require_memory(whole_job(most));
      const LayerSeconds few = measure_layers(whole_job(most / kFewer));
      const LayerSeconds many = measure_layers(whole_job(most));
      CalibratedCosts costs =
          calibrate({inputs_.network, cluster, inputs_.constants, inputs_.software},
                    request_.search.precision, cluster.device, few, many);
      inputs_.network = std::move(costs.network);
      inputs_.constants = std::move(costs.constants);
      inputs_.software = std::move(costs.software);
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "Layers could not be measured, formulas stand in for that: {}\n",
                 error.what());
    }
  }

  HereCandidates gather() {
    HereCandidates all;
    for (const int count : counts_) {
      const Cluster cluster = cluster_of(count);
      request_.search.devices = count;
      all.merge(candidates_here({inputs_.network, cluster, inputs_.constants, inputs_.software},
                                request_));
    }
    return all;
  }

  TrainJob job_of(const HereCandidate& candidate) const {
    JobFlags flags = job_flags_;
    flags.plan = {};
    const Json own = describe_flags(candidate.job);
    flags.batch = std::llround(own["--batch"].get<double>());
    flags.recompute = own["--recompute"].get<std::string>();
    if (own.contains("--head-parallel")) {
      flags.head.parallel = own["--head-parallel"].get<std::string>();
    }
    TrainJob job = to_job(flags);
    job.plan = candidate.plan;
    job.options.batch = std::llround(candidate.samples());
    if (job.steps == 0) job.steps = kSteps;
    job.epochs = 0;
    check(job);
    return job;
  }

  // Compiles without taking the memory.
  void require_memory(const TrainJob& job) const {
    const auto needed = std::stoull(in_child([&] {
      ProgressPrinter messages(true);
      uint64_t sum = 0;
      for (const Json& device : describe_plan(job, messages)["devices"]) {
        sum += device["peak_bytes"].get<uint64_t>();
      }
      return std::to_string(sum);
    }));
    if (static_cast<double>(needed) > request_.memory) {
      fail_input("It needs {}, and {} are free.", format_bytes(needed),
                 format_bytes(static_cast<uint64_t>(request_.memory)));
    }
  }

  std::string measure_once(MeasuredPlan& plan) const {
    try {
      const TrainJob job = job_of(plan.candidate);
      const bool known = plan.measured() || plan.candidate.memory < kSurelyFits * request_.memory;
      if (!known) require_memory(job);
      plan.reports.push_back(predict_in_child(job, {.rounds = check_.rounds}, ""));
    } catch (const std::runtime_error& error) {
      plan.failure = error.what();
      return plan.candidate.shape + ": " + plan.failure;
    }
    return fmt::format("{}: {:.1f} samples/s", plan.candidate.shape,
                       static_cast<double>(batch_) / plan.seconds(static_cast<double>(batch_)));
  }

  void sort(std::vector<MeasuredPlan>& plans) const {
    std::stable_sort(plans.begin(), plans.end(), [&](const auto& a, const auto& b) {
      if (a.measured() != b.measured()) return a.measured();
      const auto global_batch = static_cast<double>(batch_);
      return a.measured() && a.seconds(global_batch) < b.seconds(global_batch);
    });
  }

  // Makes these of the other candidates, in their order, finalists, and measures them.
  void measure_those(HereOutcome& outcome, const std::vector<size_t>& places,
                     MeasuringProgress& progress) const {
    for (const size_t place : places) {
      outcome.plans.push_back({outcome.others[place], {}, {}});
      progress.done(measure_once(outcome.plans.back()));
    }
    for (size_t i = places.size(); i-- > 0;) {
      outcome.others.erase(outcome.others.begin() + static_cast<std::ptrdiff_t>(places[i]));
    }
    sort(outcome.plans);
  }

  // Other numbers of micro-batches for the plans that came out best.
  std::vector<size_t> near_the_best(const HereOutcome& outcome, size_t count) const {
    std::set<size_t> places;
    for (const MeasuredPlan& plan : outcome.plans) {
      if (!plan.measured()) continue;
      for (const size_t place : neighbours_of(plan.candidate, outcome.others)) {
        if (places.size() < count) places.insert(place);
      }
    }
    return {places.begin(), places.end()};
  }

  // Most finalists once, then neighbours of the best, then those that are close to the best in
  // turn, because the machine's speed drifts.
  void measure(HereOutcome& outcome) const {
    const auto count = static_cast<size_t>(flags_.finalists);
    const size_t later = count / kLater;
    const std::vector<size_t> first = choose_finalists(outcome.others, count - later);
    MeasuringProgress progress(first.size() +
                               std::min(later, outcome.others.size() - first.size()));
    measure_those(outcome, first, progress);
    measure_those(outcome, near_the_best(outcome, later), progress);
    measure_again(outcome.plans, progress);
  }

  void measure_again(std::vector<MeasuredPlan>& plans, MeasuringProgress& progress) const {
    if (!plans.front().measured()) fail_job("No plan could be measured: {}", plans[0].failure);
    const auto global_batch = static_cast<double>(batch_);
    const double limit = plans.front().seconds(global_batch) * (1 + kClose);
    size_t contenders = 0;
    while (contenders < std::min(plans.size(), kMostContenders) && plans[contenders].measured() &&
           plans[contenders].seconds(global_batch) <= limit) {
      ++contenders;
    }
    if (contenders < 2) return;
    progress.expect(kAgain * contenders);
    for (int again = 0; again < kAgain; ++again) {
      for (size_t i = 0; i < contenders; ++i) progress.done(measure_once(plans[i]) + " (again)");
    }
    sort(plans);
  }

  const ClusterFlags& flags_;
  const CheckFlags& check_;
  const JobFlags& job_flags_;
  int64_t batch_ = 1;
  std::vector<int> counts_;  // of devices
  Cluster machine_;
  PlanInputs inputs_;
  HereRequest request_;
};

// Writes the simulated timeline to `trace`, if there is one.
Json describe_unmeasured(const HereOutcome& outcome, const PlanInputs& inputs,
                         const std::string& trace) {
  const HereCandidate& chosen = outcome.others.front();
  const Prediction prediction =
      predict(inputs.network, chosen.job, inputs.cluster, inputs.constants, inputs.software);
  if (!trace.empty()) {
    write_text(trace, trace_of(prediction.simulation.input, prediction.result).dump() + "\n");
  }
  Json described = describe_prediction(chosen.job, prediction, inputs);
  described["plan"] = to_json(chosen.plan);
  described["search"] = describe_search(outcome);
  return described;
}

}  // namespace

bool plans_here(const ClusterFlags& flags) {
  const bool here =
      flags.cluster.empty() || flags.cluster == "here" || flags.cluster == "this-machine";
  return flags.automatic && here && flags.system == "millrace";
}

void require_no_search_here(const CLI::App& command) {
  for (const char* name : {"--finalists", "--no-measure"}) {
    if (command.count(name) > 0) {
      fail_input("{} goes with --auto on this machine: --cluster here, without --as.", name);
    }
  }
}

int run_here_plan(const CLI::App& command, const ClusterFlags& flags, const CheckFlags& check_flags,
                  const JobFlags& job, bool json) {
  check(check_flags);
  if (flags.finalists < 1 || flags.finalists > kMostFinalists) {
    fail_input("--finalists is {}; give 1 to {}.", flags.finalists, kMostFinalists);
  }
  HerePlanner planner(command, flags, check_flags, job);
  const HereOutcome outcome = planner.run();
  const bool measured = !outcome.plans.empty();
  if (!measured && !any_fits(outcome.others)) {
    const Json report = describe_search(outcome);
    fmt::print("{}", json ? report.dump(2) + "\n" : format_search(report));
    return kExitSuccess;
  }
  Json described;
  if (measured) {
    described = describe_choice(outcome, planner.inputs().network);
  } else {
    described = describe_unmeasured(outcome, planner.inputs_for(outcome.others.front().devices()),
                                    flags.trace);
  }
  if (!flags.output.empty()) write_text(flags.output, described["plan"].dump(2) + "\n");
  if (!flags.trace.empty() && measured) planner.write_trace(outcome.plans.front());
  if (json) {
    fmt::print("{}\n", described.dump(2));
  } else {
    fmt::print("{}", measured ? format_choice(described) : format_prediction(described));
  }
  return kExitSuccess;
}

}  // namespace millrace
