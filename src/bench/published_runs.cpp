#include "bench/published_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/plan.h"
#include "train/trainer.h"

namespace millrace::bench {
namespace {

constexpr int kOneMachine = 4096;  // devices are numbered through
constexpr double kOfFreeMemory = 0.6;

std::optional<graph::MarginHeadOptions> head_of(const planner::PublishedRow& row) {
  using Parallel = planner::PlannedHead::Parallel;
  const planner::PlannedHead& head = row.job.head;
  if (head.parallel == Parallel::none) return std::nullopt;
  graph::MarginHeadOptions options;
  options.addend = 0.5;
  options.parallel = head.parallel == Parallel::data    ? graph::HeadParallel::dp
                     : head.parallel == Parallel::model ? graph::HeadParallel::mp
                                                        : graph::HeadParallel::pfc;
  options.sample_rate = head.parallel == Parallel::sampled ? head.sample_rate : 1;
  return options;
}

train::TrainJob job_of(const planner::PublishedTables& tables, const planner::PublishedRow& row) {
  train::TrainJob job;
  job.model = row.model;
  job.options = row.options;
  job.plan = planner::plan_of(tables.network(row), row.job, kOneMachine);
  job.options.head = head_of(row);
  job.precision.type = row.job.precision;
  job.steps = 1;
  job.threads = 1;
  job.oversubscribe = true;
  job.convolution = kernels::ConvolutionAlgorithm::direct;
  job.learning_rate.base = 1e-3;
  job.optimizer.weight_decay = 1e-4;
  return job;
}

void set_classes(train::TrainJob& job, double classes) {
  if (!job.options.head) return;
  job.options.classes = std::max<int64_t>(64, std::llround(classes));
  job.options.head->classes = job.options.classes;
}

int64_t samples_of(const planner::PublishedRow& row, int64_t batch) {
  return row.job.round_robin ? batch : batch * row.job.devices();
}

int64_t total_memory(const Json& plan) {
  int64_t sum = 0;
  for (const Json& device : plan["devices"]) sum += device["peak_bytes"].get<int64_t>();
  return sum;
}

}  // namespace

train::TrainJob full_job(const planner::PublishedTables& tables, const planner::PublishedRow& row) {
  train::TrainJob job = job_of(tables, row);
  job.options.batch = samples_of(row, std::llround(row.job.batch));
  set_classes(job, row.job.head.classes);
  return job;
}

train::TrainJob reduced_job(const planner::PublishedTables& tables,
                            const planner::PublishedRow& row, const ReducedSize& size) {
  train::TrainJob job = job_of(tables, row);
  job.options.batch = samples_of(row, size.batch);
  job.options.image = std::max(size.image, models::smallest_image(job.model, job.options));
  set_classes(job, row.job.head.classes * size.classes);
  job.steps = size.steps;
  return job;
}

void add_exact_memory(const train::TrainJob& job, Json& described) {
  try {
    train::TrainingObserver silent;
    const Json plan = train::describe_plan(job, silent);
    std::map<std::string, double> devices;  // stages may share them
    for (const Json& device : plan["devices"]) {
      devices[device["id"].get<std::string>()] += device["peak_bytes"].get<double>();
    }
    std::vector<double> stages(static_cast<size_t>(job.plan.stage_count()), 0.0);
    for (const Json& device : plan["devices"]) {
      double& most = stages.at(device["stage"].get<size_t>());
      most =
          std::max(most, std::round(devices[device["id"].get<std::string>()] / planner::kMebibyte));
    }
    described["exact_memory_mib"] = stages;
  } catch (const InputError& error) {
    described["exact_note"] = error.marked();
  }
}

void add_run(const train::TrainJob& job, const ReducedSize& size, Json& described) {
  try {
    train::TrainingObserver silent;
    const int64_t needed = total_memory(train::describe_plan(job, silent));
    if (static_cast<double>(needed) > kOfFreeMemory * static_cast<double>(available_memory())) {
      described["run_note"] = fmt::format("needs {}", format_bytes(static_cast<uint64_t>(needed)));
      return;
    }
    const train::TrainResult result = train::run_training(job, silent);
    const double middle = median(
        {result.seconds.begin() + (result.seconds.size() > 1 ? 1 : 0), result.seconds.end()});
    described["run"] = {
        {"image", job.options.image},
        {"batch", size.batch},
        {"devices", result.devices.size()},
        {"steps", result.losses.size()},
        {"samples_per_second", middle > 0 ? static_cast<double>(job.options.batch) / middle : 0},
        {"first_loss", result.losses.empty() ? 0 : result.losses.front()},
        {"last_loss", result.losses.empty() ? 0 : result.losses.back()},
        {"peak_bytes", needed}};
  } catch (const std::exception& error) {  // one row's failure is not the table's
    described["run_note"] = marked_text(error);
  }
}

}  // namespace millrace::bench
