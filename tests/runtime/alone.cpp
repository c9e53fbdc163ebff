#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "pipeline.h"

namespace millrace::testing {
namespace {

constexpr int64_t kLabels = 10;

}  // namespace

graph::Shape row_of(const compile::Slot& slot) {
  return {slot.type.shape.begin() + 1, slot.type.shape.end()};
}

RowRange rows_of(const compile::Slot& slot, int64_t micro_batch, int64_t rows) {
  const int64_t begin = micro_batch * rows + (slot.slice.axis == 0 ? slot.slice.begin : 0);
  return {begin, begin + slot.type.shape[0]};
}

std::vector<float> images_of(const graph::Shape& row_shape, int64_t step, int64_t begin,
                             int64_t end) {
  const int64_t count = graph::elements_of(row_shape);
  std::vector<float> values;
  for (int64_t row = begin; row < end; ++row) {
    const Random random(static_cast<uint64_t>(step) + 100, static_cast<uint64_t>(row));
    for (int64_t i = 0; i < count; ++i) values.push_back(random.normal(static_cast<uint64_t>(i)));
  }
  return values;
}

std::vector<int32_t> labels_of(int64_t step, int64_t begin, int64_t end) {
  std::vector<int32_t> values;
  for (int64_t row = begin; row < end; ++row) {
    values.push_back(static_cast<int32_t>((3 * row + 7 * step + row * row) % kLabels));
  }
  return values;
}

PipelineSpec spec_of(graph::Graph network, std::vector<std::vector<int>> devices,
                     parallel::ScheduleKind schedule, int64_t micro_batches, int64_t steps) {
  PipelineSpec spec;
  spec.network = std::move(network);
  spec.devices = std::move(devices);
  spec.schedule = schedule;
  spec.micro_batches = micro_batches;
  spec.steps = steps;
  return spec;
}

compile::CompileOptions compile_options(const passes::OptimizerSettings& optimizer) {
  compile::CompileOptions options;
  options.kernels.convolution = kernels::ConvolutionAlgorithm::direct;
  options.kernels.threads = 1;
  options.optimizer = optimizer;
  return options;
}

TestAlone::TestAlone(const graph::Graph& network, int64_t micro_batches,
                     const passes::OptimizerSettings& optimizer)
    : micro_batches_(micro_batches), device_({.threads = 1}) {
  const int64_t samples = network.tensor(network.find_tensor("images")).type.shape[0];
  rows_ = samples / micro_batches;
  compile::CompileOptions options = compile_options(optimizer);
  options.updates.accumulate = true;
  options.shape.phasing = compile::Phasing::micro_batches;
  program_ = compile::compile_training(parallel::with_batch(network, rows_, samples), options);
  session_ =
      std::make_unique<runtime::Session>(device_, std::vector<const compile::Program*>{&program_});
  session_->initialize(kSeed);
}

kernels::StepState TestAlone::step_state(int64_t step, int64_t micro_batch) const {
  return {kSeed, step, kLearningRate, micro_batch, micro_batch * rows_};
}

double TestAlone::accumulate(int64_t step, int64_t micro_batch, bool first) {
  for (const compile::Slot& slot : program_.inputs) {
    const RowRange rows = rows_of(slot, micro_batch, rows_);
    if (slot.type.dtype == graph::DataType::s32) {
      session_->write_input(program_, slot.name, labels_of(step, rows.begin, rows.end));
    } else {
      session_->write_input(program_, slot.name,
                            images_of(row_of(slot), step, rows.begin, rows.end));
    }
  }
  kernels::StepState state = step_state(step, micro_batch);
  state.micro_batch = first ? 0 : 1;
  double loss = 0;
  device_.run([&] {
    session_->run_task(program_, program_.task(parallel::Work::forward), {}, state);
    loss = session_->scalar(program_, "loss");
    session_->run_task(program_, program_.task(parallel::Work::backward), {}, state);
  });
  return loss;
}

void TestAlone::update(int64_t step) {
  device_.run([&] {
    session_->run_task(program_, program_.task(parallel::Work::update), {}, step_state(step, 0));
  });
}

double TestAlone::train(int64_t step) {
  double loss = 0;
  for (int64_t m = 0; m < micro_batches_; ++m) loss += accumulate(step, m, m == 0);
  update(step);
  return loss;
}

Weights TestAlone::state(graph::Role role) const {
  Weights weights;
  for (const compile::Slot& slot : session_->state()) {
    if (slot.role != role) continue;
    std::vector<float>& values = weights[slot.name];
    values.resize(static_cast<size_t>(slot.type.elements()));
    session_->read_state(slot, values);
  }
  return weights;
}

void TestAlone::set_weights(const Weights& weights) {
  for (const compile::Slot& slot : session_->state()) {
    if (slot.role == graph::Role::parameter) session_->write_state(slot, weights.at(slot.name));
  }
}

std::vector<float> evaluate_alone(const graph::Graph& network, int64_t micro_batch_rows,
                                  const Weights& weights, int64_t micro_batch) {
  const graph::Graph graph = parallel::with_batch(network, micro_batch_rows, micro_batch_rows);
  const compile::Program program = compile::compile_evaluation(graph, compile_options({}));
  backend::Device device({.threads = 1});
  runtime::Session session(device, {&program});
  for (const compile::Slot& slot : session.state())
    session.write_state(slot, weights.at(slot.name));
  const compile::Slot& images = program.input("images");
  const RowRange rows = rows_of(images, micro_batch, micro_batch_rows);
  session.write_input(program, "images", images_of(row_of(images), 0, rows.begin, rows.end));
  session.write_input(program, "labels", labels_of(0, rows.begin, rows.end));
  session.run(program, {});
  return session.result(program, "logits");
}

double distance(const Weights& actual, const Weights& expected, std::string* where) {
  double worst = 0;
  for (const auto& [name, values] : expected) {
    const std::vector<float>& others = actual.at(name);
    EXPECT_EQ(others.size(), values.size()) << name;
    double norm = 0;
    double difference = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      norm += std::pow(values[i], 2);
      difference += std::pow(others[i] - values[i], 2);
    }
    const double relative = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-3);
    if (!(relative <= worst)) {
      worst = relative;
      if (where != nullptr) *where = name;
    }
  }
  return worst;
}

}  // namespace millrace::testing
