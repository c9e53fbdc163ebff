// Helpers of the training tests: a fresh directory per test, recorded observers, small jobs.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/weights.h"

namespace millrace::train {

// A directory of its own per test, removed afterwards.
class DirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::path(::testing::TempDir()) / "millrace-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
};

// The message of the InputError that `action` throws; empty if it throws none.
template <typename Action>
std::string input_error_of(Action&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.marked();
  }
  return "";
}

// Keeps everything that a job reports.
class Recorder : public TrainingObserver {
 public:
  void on_start(const JobStart& start) override { starts.push_back(start); }
  void on_step(const StepReport& report) override {
    steps.push_back(report);
    if (after_step) after_step(report.step);
  }
  void on_evaluation(const EvaluationReport& report) override { evaluations.push_back(report); }
  void on_checkpoint(const CheckpointReport& report) override { checkpoints.push_back(report); }
  void on_message(Severity severity, std::string_view sentence) override {
    (severity == Severity::warning ? warnings : notes).emplace_back(sentence);
  }

  std::vector<JobStart> starts;
  std::vector<StepReport> steps;
  std::vector<EvaluationReport> evaluations;
  std::vector<CheckpointReport> checkpoints;
  std::vector<std::string> warnings, notes;
  std::function<void(int64_t)> after_step;
};

// A network that trains in milliseconds, with dropout and batch norm.
inline TrainJob small_job() {
  TrainJob job;
  job.model = "fashion_cnn";
  job.options = models::default_options(job.model);
  job.options.batch = 8;
  job.steps = 6;
  job.seed = 7;
  job.threads = 1;
  job.learning_rate.base = 0.05;
  job.convolution = kernels::ConvolutionAlgorithm::direct;
  return job;
}

inline StateTensor state_tensor(const std::string& name, graph::Role role, graph::Shape shape,
                                float start) {
  StateTensor tensor = {name, role, std::move(shape), {}};
  tensor.values.resize(static_cast<size_t>(graph::elements_of(tensor.shape)));
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = start + static_cast<float>(i);
  }
  return tensor;
}

inline StateSnapshot small_snapshot(float start = 0) {
  return {state_tensor("conv.weight", graph::Role::parameter, {2, 3, 1, 1}, start),
          state_tensor("bn.running_mean", graph::Role::buffer, {2}, start),
          state_tensor("conv.weight.momentum", graph::Role::optimizer_state, {2, 3, 1, 1}, start)};
}

}  // namespace millrace::train
