// A margin head whose centres take their step behind all gradients: with clipping, with a check
// for overflow, and over several micro-batches.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "compile/compiler.h"
#include "graph/builder.h"
#include "parallel/job_graphs.h"
#include "parallel/placement.h"
#include "runtime/session.h"
#include "session_support.h"

namespace millrace::runtime {
namespace {

constexpr int64_t kBatch = 12;
constexpr int64_t kPixels = 3 * 4 * 4;
constexpr int64_t kClasses = 700;

graph::Graph network(double rate = 1) {
  graph::Builder net;
  const graph::Value image = net.image(kBatch, 3, 4, 4);
  const graph::Value maps =
      net.relu(net.convolution(image, "conv", {.channels = 8, .kernel = 3, .padding = 1}));
  const graph::Value embedding = net.linear(net.flatten(maps), "fc", {.features = 32});
  net.margin_head(embedding, {.classes = kClasses, .addend = 0.3, .scale = 8, .sample_rate = rate});
  return net.take();
}

constexpr const char* kParameters[] = {"head.centres", "fc.weight", "fc.bias", "conv.weight"};

compile::CompileOptions compile_options() {
  compile::CompileOptions options;
  options.kernels.threads = 2;
  options.optimizer.weight_decay = 0.01;
  return options;
}

// One device with a program that is run whole.
struct Trained {
  explicit Trained(const compile::CompileOptions& options, double rate = 1)
      : program(compile::compile_training(network(rate), options)), session(device, {&program}) {
    session.initialize(1);
  }

  void feed(float factor = 1) {
    const Random random(3, 3);
    std::vector<float> images(kBatch * kPixels);
    for (size_t i = 0; i < images.size(); ++i) images[i] = factor * random.normal(i);
    session.write_input(program, "images", images);
    session.write_input(program, "labels", labels());
  }

  static std::vector<int32_t> labels() {
    std::vector<int32_t> all;
    for (int64_t i = 0; i < kBatch; ++i) all.push_back(static_cast<int32_t>(i * 977 % kClasses));
    return all;
  }

  backend::Device device = backend::Device({.threads = 2});
  compile::Program program;
  Session session;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(sum);
}

double norm(const std::vector<float>& a) { return distance(a, std::vector<float>(a.size())); }

TEST(DeferredHead, AStepBehindAllGradientsIsTheSame) {
  for (const std::string& optimizer : std::vector<std::string>{"sgd", "adamw", "lars"}) {
    for (const double rate : {1.0, 0.2}) {
      compile::CompileOptions options = compile_options();
      options.optimizer.name = optimizer;
      Trained now(options, rate);
      options.optimizer.clip_norm = 1e6;
      Trained later(options, rate);
      for (Trained* run : {&now, &later}) {
        for (int64_t step = 0; step < 3; ++step) {
          run->feed();
          run->session.run(run->program, {1, step, 0.01f});
        }
      }
      for (const char* tensor : {"head.centres", "fc.weight"}) {
        const auto expected = state_of(now.session, tensor);
        EXPECT_LT(distance(state_of(later.session, tensor), expected), 1e-5 * norm(expected))
            << tensor;
      }
    }
  }
}

// With no momentum and no decay a step is the rate times the gradient.
TEST(DeferredHead, ClippingCountsTheCentres) {
  compile::CompileOptions options = compile_options();
  options.optimizer.momentum = 0;
  options.optimizer.weight_decay = 0;
  double whole = 0;
  for (const double bound : {1e6, 0.05}) {
    options.optimizer.clip_norm = bound;
    Trained run(options);
    run.feed();
    std::vector<std::vector<float>> before;
    for (const char* name : kParameters) {
      before.push_back(state_of(run.session, name));
    }
    run.session.run(run.program, {1, 0, 0.5f});
    double squares = 0;
    size_t i = 0;
    for (const char* name : kParameters) {
      const double step = distance(state_of(run.session, name), before[i++]);
      squares += step * step;
    }
    const double length = std::sqrt(squares) / 0.5;
    if (bound < 1) {
      EXPECT_GT(whole, 2 * bound);
      EXPECT_NEAR(length, bound, 1e-3 * bound);
    }
    whole = length;
  }
}

TEST(DeferredHead, AnOverflowLeavesTheCentresAlone) {
  compile::CompileOptions options = compile_options();
  options.updates.check_overflow = true;
  Trained run(options);
  run.feed();
  run.session.run(run.program, {1, 0, 0.1f});
  const auto centres = state_of(run.session, "head.centres");
  const auto momentum = state_of(run.session, "head.centres.momentum");
  EXPECT_GT(norm(momentum), 0);
  run.feed(std::numeric_limits<float>::infinity());
  run.session.run(run.program, {1, 1, 0.1f});
  EXPECT_EQ(state_of(run.session, "head.centres"), centres);
  EXPECT_EQ(state_of(run.session, "head.centres.momentum"), momentum);
  run.feed();
  run.session.run(run.program, {1, 2, 0.1f});
  EXPECT_NE(state_of(run.session, "head.centres"), centres);
}

TEST(DeferredHead, MicroBatchesTakeOneStepTogether) {
  constexpr int64_t kParts = 3;
  parallel::Plan plan;
  plan.stages = parallel::parse_stages("0:0");
  plan.micro_batches = kParts;
  const parallel::JobGraphs graphs(network(), plan);
  compile::CompileOptions options = compile_options();
  Trained whole(options);
  options.updates.accumulate = true;
  options.updates.micro_batches = kParts;
  options.shape.phasing = compile::Phasing::micro_batches;
  const compile::Program program = compile::compile_stage(graphs.local(0, 0), options);
  backend::Device device({.threads = 2});
  Session session(device, {&program});
  session.initialize(1);
  std::vector<float> images(kBatch * kPixels);
  const Random random(3, 3);
  for (size_t i = 0; i < images.size(); ++i) images[i] = random.normal(i);
  const auto labels = Trained::labels();
  for (int64_t step = 0; step < 2; ++step) {
    whole.feed();
    whole.session.run(whole.program, {1, step, 0.05f});
    for (int64_t m = 0; m < kParts; ++m) {
      const auto rows = static_cast<size_t>(kBatch / kParts);
      const auto first = static_cast<size_t>(m) * rows;
      session.write_input(program, "images",
                          std::span<const float>(images).subspan(first * kPixels, rows * kPixels));
      session.write_input(program, "labels", std::span<const int32_t>(labels).subspan(first, rows));
      kernels::StepState state = {1, step, 0.05f};
      state.micro_batch = m;
      device.run([&] {
        session.run_task(program, program.task(parallel::Work::forward), {}, state);
        session.run_task(program, program.task(parallel::Work::backward), {}, state);
        if (m + 1 == kParts)
          session.run_task(program, program.task(parallel::Work::update), {}, state);
      });
    }
  }
  for (const compile::Slot& slot : session.state()) {
    if (slot.role == graph::Role::accumulator) continue;
    std::vector<float> values(static_cast<size_t>(slot.type.elements()));
    session.read_state(slot, values);
    const auto expected = state_of(whole.session, slot.name);
    EXPECT_LT(distance(values, expected), 1e-5 * norm(expected)) << slot.name;
  }
}

}  // namespace
}  // namespace millrace::runtime
