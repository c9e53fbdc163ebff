#include "planner/search/explain.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace::planner {
namespace {

constexpr double kTwice = 2;
constexpr double kMatters = 0.01;  // of a step

struct StageSeconds {
  double computing = 0, waiting = 0;
};

// Of each stage, on its first device.
std::vector<StageSeconds> seconds_of_stages(const PlanQuestion& question, const PlannedJob& job) {
  const Prediction prediction = predict(question.inputs, job);
  std::vector<StageSeconds> stages;
  for (size_t i = 0; i < job.stages.size(); ++i) {
    StageSeconds seconds;
    for (size_t other = 0; other < job.stages.size(); ++other) {
      if (job.stages[other].devices != job.stages[i].devices) continue;
      const StageCost& cost = prediction.costs[other];
      seconds.computing +=
          (cost.forward + cost.backward_seconds()) * job.micro_batches + cost.update;
    }
    if (job.round_robin) seconds.computing /= static_cast<double>(job.stages[i].devices.size());
    seconds.waiting = std::max(0.0, prediction.seconds_per_step - seconds.computing);
    stages.push_back(seconds);
  }
  return stages;
}

std::vector<StageBound> bounds_of(const PlanQuestion& question, const PlannedJob& job) {
  const std::vector<StageSeconds> now = seconds_of_stages(question, job);
  const std::vector<StageSeconds> arithmetic =
      seconds_of_stages(with_faster_devices(question, kTwice, 1), job);
  const std::vector<StageSeconds> memory =
      seconds_of_stages(with_faster_devices(question, 1, kTwice), job);
  const std::vector<StageSeconds> links =
      seconds_of_stages(with_faster_links(question, kTwice), job);
  std::vector<StageBound> bounds;
  for (size_t i = 0; i < now.size(); ++i) {
    bounds.push_back({now[i].computing, now[i].waiting, now[i].computing - arithmetic[i].computing,
                      now[i].computing - memory[i].computing, now[i].waiting - links[i].waiting});
  }
  return bounds;
}

class Changes {
 public:
  Changes(const PlanQuestion& question, const PlannedJob& job)
      : question_(question), job_(job), now_(answer_now(question, job)) {}

  std::vector<PlanChange> run() {
    const simulate::Cluster& cluster = question_.inputs.cluster;
    const int devices = question_.devices();
    const bool follows = !question_.given || question_.given->stages.size() == 1;
    const bool grows = cluster.network.bandwidth > 0;
    if (follows && (grows || devices < cluster.devices())) {
      add("one more device", with_devices(question_, devices + 1, "‹explain›"));
    }
    if (follows && (grows || 2 * devices <= cluster.devices())) {
      add("twice the devices", with_devices(question_, 2 * devices, "‹explain›"));
    }
    add("twice the bandwidth of all links", with_faster_links(question_, kTwice));
    const bool half = question_.request.precision != graph::DataType::f32 ||
                      (question_.given && question_.given->precision != graph::DataType::f32);
    const simulate::DeviceKind& device = cluster.device;
    if (!half && device.fp16_operations > 0) {
      add("fp16", with_precision(question_, graph::DataType::f16));
    }
    if (!half && device.bf16_operations > 0) {
      add("bf16", with_precision(question_, graph::DataType::bf16));
    }
    PlanQuestion larger = question_;
    larger.inputs.cluster.device.memory_bytes *= kTwice;
    larger.inputs.cluster.host_memory_bytes *= kTwice;
    larger.request.memory_limit *= kTwice;
    if (!question_.given) add("twice the memory", larger);
    return std::move(changes_);
  }

 private:
  static PlanAnswer answer_now(const PlanQuestion& question, const PlannedJob& job) {
    PlanQuestion given = question;
    given.given = job;
    return answer(given);
  }

  void add(std::string name, const PlanQuestion& changed) {
    PlanChange change{std::move(name), answer(changed), 0};
    if (!changed.given) {  // the plan as it is may still be the best that is known
      PlannedJob kept = job_;
      kept.precision = changed.request.precision;
      PlanAnswer same = answer_now(changed, kept);
      const double rate = change.answer.samples_per_second;
      if (same.fits && same.samples_per_second > rate) change.answer = std::move(same);
    }
    change.factor = change.answer.samples_per_second / now_.samples_per_second;
    changes_.push_back(std::move(change));
  }

  const PlanQuestion& question_;
  const PlannedJob& job_;
  const PlanAnswer now_;
  std::vector<PlanChange> changes_;
};

}  // namespace

std::string StageBound::bound() const {
  const double most = std::max({by_arithmetic, by_memory, by_links});
  if (most < kMatters * (computing + waiting)) return "other stages";
  if (most == by_links) return "links";
  return most == by_memory ? "memory traffic" : "arithmetic";
}

Explanation explain(const PlanQuestion& question, const PlannedJob& job) {
  return {bounds_of(question, job), Changes(question, job).run()};
}

Json describe(const Explanation& explanation) {
  Json json = {{"stages", Json::array()}, {"changes", Json::array()}};
  for (const StageBound& stage : explanation.stages) {
    json["stages"].push_back({{"stage", json["stages"].size()},
                              {"bound", stage.bound()},
                              {"computing_seconds", stage.computing},
                              {"waiting_seconds", stage.waiting},
                              {"saved_by_twice_arithmetic", stage.by_arithmetic},
                              {"saved_by_twice_memory_traffic", stage.by_memory},
                              {"saved_by_twice_links", stage.by_links}});
  }
  for (const PlanChange& change : explanation.changes) {
    Json one = {{"change", change.name}, {"shape", change.answer.shape}};
    one["fits"] = change.answer.fits;
    one["predicted_samples_per_second"] = change.answer.samples_per_second;
    one["factor"] = change.factor;
    json["changes"].push_back(std::move(one));
  }
  return json;
}

std::string format_explanation(const Json& described) {
  std::string text = "\nWhat bounds each stage, in seconds of a step:\n";
  for (const Json& stage : described["stages"]) {
    text +=
        fmt::format("  stage {}: {:<15} computes {:.4f}, waits {:.4f}\n", stage["stage"].get<int>(),
                    stage["bound"].get<std::string>(), stage["computing_seconds"].get<double>(),
                    stage["waiting_seconds"].get<double>());
  }
  text += "What would change it, planned again with each:\n";
  for (const Json& change : described["changes"]) {
    const double rate = change["predicted_samples_per_second"].get<double>();
    text += fmt::format("  {:<33} {}  {}\n", change["change"].get<std::string>(),
                        rate > 0 ? fmt::format("{:>10.1f} samples/s, {:.2f} times", rate,
                                               change["factor"].get<double>())
                                 : std::string("nothing fits"),
                        change["shape"].get<std::string>());
  }
  return text;
}

}  // namespace millrace::planner
