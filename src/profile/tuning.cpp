#include "profile/tuning.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "backend/device.h"
#include "kernels/convolution_costs.h"
#include "train/plan.h"

namespace millrace::profile {
namespace {

// A problem to measure.
struct Open {
  kernels::ConvolutionProblem problem;
  std::vector<kernels::ConvolutionMethod> methods;
  std::string before;
  int threads = 1;
  double cost = 0;  // of measuring, in any unit
};

using OpenProblems = std::map<std::string, Open>;

OpenProblems collect(const TuningRequest& request, kernels::ConvolutionChoices& choices,
                     train::TrainingObserver& observer) {
  OpenProblems open;
  choices.on_choice([&](const kernels::ConvolutionProblem& problem,
                        const kernels::KernelOptions& options,
                        const std::vector<kernels::ConvolutionMethod>& methods) {
    const std::string key = kernels::tuning_key(problem, options);
    if (open.contains(key) || (!request.again && choices.measured().contains(key))) return;
    Open& entry = open[key];
    entry = {problem, methods, {}, options.threads, 0};
    for (const kernels::ConvolutionMethod method : methods)
      entry.cost += kernels::cost_of(problem, method);
  });
  for (const train::TrainJob& job : request.jobs) {
    train::describe_plan(job, observer, {.choices = &choices});
  }
  choices.on_choice({});
  for (auto& [key, entry] : open) entry.before = choices.used().at(key);
  return open;
}

Json describe(const Open& open) {
  constexpr const char* kDirections[] = {"forward", "backward_data", "backward_weights"};
  const kernels::ConvolutionProblem& problem = open.problem;
  return {{"direction", kDirections[static_cast<size_t>(problem.direction)]},
          {"x", problem.x.shape},
          {"w", problem.w.shape},
          {"y", problem.y.shape},
          {"stride", problem.stride},
          {"padding", problem.padding},
          {"groups", problem.groups},
          {"bf16", problem.halves},
          {"threads", open.threads},
          {"processor", kernels::processor_description()}};
}

TunedConvolution measure(const Open& open, backend::Device& device) {
  TunedConvolution tuned = {describe(open), open.before, {}, {}};
  std::vector<double> seconds;
  device.run([&] { seconds = kernels::measure_convolution(open.problem, open.methods); });
  ::malloc_trim(0);
  size_t best = 0;
  for (size_t i = 0; i < seconds.size(); ++i) {
    tuned.seconds[std::string(kernels::name_of(open.methods[i]))] = seconds[i];
    if (seconds[i] < seconds[best] * (best == 0 ? kernels::kWorthwhile : 1)) best = i;
  }
  tuned.after = kernels::name_of(open.methods[best]);
  return tuned;
}

}  // namespace

std::vector<TunedConvolution> tune(const TuningRequest& request,
                                   kernels::ConvolutionChoices& choices,
                                   train::TrainingObserver& observer) {
  const OpenProblems open = collect(request, choices, observer);
  double work = 0;
  for (const auto& [key, entry] : open) work += entry.cost;
  std::vector<TunedConvolution> tuned;
  std::unique_ptr<backend::Device> device;
  TuningProgress progress = {0, open.size(), 0};
  double done = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [key, entry] : open) {
    request.progress(progress);
    if (!device || device->threads() != entry.threads) {
      device.reset();
      device = std::make_unique<backend::Device>(backend::DeviceOptions{.threads = entry.threads});
    }
    tuned.push_back(measure(entry, *device));
    choices.remember(key, tuned.back().after);
    done += entry.cost;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    ++progress.done;
    progress.seconds_left = spent.count() * (work - done) / done;
  }
  request.progress(progress);
  return tuned;
}

Json to_json(const std::vector<TunedConvolution>& convolutions) {
  Json rows = Json::array();
  for (const TunedConvolution& convolution : convolutions) {
    Json row = convolution.problem;
    row["seconds"] = convolution.seconds;
    row["before"] = convolution.before;
    row["after"] = convolution.after;
    rows.push_back(std::move(row));
  }
  return {{"convolutions", rows}};
}

}  // namespace millrace::profile
