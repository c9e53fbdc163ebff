// Members' graphs compiled and run as they will be: fused, with the kernels' own layouts, in place,
// recomputed, gradients exchanged. Ten steps give the losses and weights of one device.
#include <gtest/gtest.h>

#include <memory>

#include "comm/local_group.h"
#include "compile/compiler.h"
#include "devices.h"
#include "graph/builder.h"
#include "networks.h"
#include "runtime/device_collectives.h"
#include "runtime/session.h"

namespace millrace::testing {
namespace {

constexpr int kSteps = 10;

std::vector<float> floats(const Values& values) { return {values.begin(), values.end()}; }

// A program on a device of its own.
class Machine {
 public:
  Machine(const graph::Graph& graph, const compile::CompileOptions& options)
      : program_(compile::compile_training(graph, options)),
        device_({.threads = 1}),
        session_(device_, {&program_}) {
    session_.initialize(5);
  }

  const compile::Program& program() const { return program_; }

  void join(comm::Group direct, comm::Group background) {
    collectives_ = std::make_unique<runtime::DeviceCollectives>(device_, std::move(direct),
                                                                std::move(background));
    session_.set_collectives(collectives_.get());
  }

  void feed(const graph::Graph& whole, const std::map<std::string, Values>& values) {
    for (const compile::Slot& slot : program_.inputs) {
      const graph::Shape& shape = whole.tensor(whole.find_tensor(slot.name)).type.shape;
      const Values part = part_of(values.at(slot.name), shape, slot.slice, slot.type.shape[0]);
      if (slot.type.dtype == graph::DataType::s32) {
        session_.write_input(program_, slot.name, std::vector<int32_t>(part.begin(), part.end()));
      } else {
        session_.write_input(program_, slot.name, floats(part));
      }
    }
  }

  void train(const char* loss) {
    for (int step = 0; step < kSteps; ++step) {
      session_.run(program_, {.seed = 7, .step = step, .learning_rate = 0.02f});
      losses_.push_back(session_.scalar(program_, loss));
    }
  }

  const Values& losses() const { return losses_; }

  const compile::Slot& slot(const std::string& name) const {
    for (const compile::Slot& candidate : program_.state) {
      if (candidate.name == name) return candidate;
    }
    throw std::out_of_range(name);
  }

  Values state(const std::string& name) const {
    const compile::Slot& found = slot(name);
    std::vector<float> values(static_cast<size_t>(found.type.elements()));
    session_.read_state(found, values);
    return {values.begin(), values.end()};
  }

 private:
  compile::Program program_;
  backend::Device device_;
  runtime::Session session_;
  std::unique_ptr<runtime::DeviceCollectives> collectives_;
  Values losses_;
};

compile::CompileOptions options_for(int member, int members) {
  compile::CompileOptions options;
  options.recompute = passes::RecomputePolicy::all;
  options.updates.members = members;
  options.updates.member = member;
  return options;
}

void compare(const graph::Graph& forward, const Machine& alone,
             const parallel::ShardingPolicy& policy, int members) {
  SCOPED_TRACE(std::string(parallel::name_of(policy.parallelism)) + " over " +
               std::to_string(members));
  const auto values = first_values(forward);
  const parallel::ShardedGraph sharded = parallel::shard(forward, policy, members);
  std::vector<std::unique_ptr<Machine>> machines;
  auto direct = comm::make_local_groups(members);
  auto background = comm::make_local_groups(members);
  for (int m = 0; m < members; ++m) {
    compile::CompileOptions options = options_for(m, members);
    if (m > 0) {
      for (const compile::Slot& slot : machines[0]->program().state) {
        if (slot.slice.axis == graph::kNone) options.layouts[slot.name] = slot.layout;
      }
    }
    machines.push_back(std::make_unique<Machine>(parallel::localize(sharded, m), options));
    machines.back()->join(direct[static_cast<size_t>(m)], background[static_cast<size_t>(m)]);
    machines.back()->feed(forward, values);
  }
  run_together(members, [&](int member, Meeting&) {
    machines[static_cast<size_t>(member)]->train("loss.total");
  });
  for (const auto& machine : machines) {
    EXPECT_EQ(machine->losses(), machines[0]->losses());
  }
  EXPECT_LT(relative_error(machines[0]->losses(), alone.losses()), 1e-5);
  const auto& state = alone.program().state;
  ASSERT_EQ(machines[0]->program().state.size(), state.size());
  for (const compile::Slot& expected : state) {
    std::vector<Values> parts;
    for (const auto& machine : machines) parts.push_back(machine->state(expected.name));
    const int axis = machines[0]->slot(expected.name).slice.axis;
    const graph::Sharding sharding = axis == graph::kNone ? graph::broadcast() : graph::split(axis);
    EXPECT_LT(
        relative_error(joined(parts, expected.type.shape, sharding), alone.state(expected.name)),
        1e-5)
        << expected.name;
  }
}

void compare_all(const graph::Graph& forward) {
  Machine alone(forward, options_for(0, 1));
  alone.feed(forward, first_values(forward));
  alone.train("loss");
  EXPECT_LT(alone.losses().back(), alone.losses().front());
  for (int members : {2, 3, 4, 7}) {
    for (parallel::Parallelism parallelism :
         {parallel::Parallelism::data, parallel::Parallelism::model,
          parallel::Parallelism::hybrid}) {
      compare(forward, alone, {parallelism, {}, true}, members);
    }
  }
}

graph::Graph with_head(graph::HeadParallel parallel, int64_t classes) {
  graph::Builder net;
  graph::Value x = net.image(9, 3, 8, 8);
  x = net.relu(net.convolution(x, "conv", {.channels = 8, .kernel = 3, .stride = 2, .bias = true}));
  x = net.linear(net.flatten(x), "fc", {.features = 16});
  graph::MarginHeadOptions head = {.classes = classes, .addend = 0.3, .scale = 8};
  head.parallel = parallel;
  net.margin_head(x, head);
  return net.take();
}

// The same classes take part however they are divided.
TEST(Programs, MarginHeads) {
  for (const graph::HeadParallel parallel :
       {graph::HeadParallel::dp, graph::HeadParallel::mp, graph::HeadParallel::pfc}) {
    for (const int64_t classes : {kClasses, int64_t{300}}) {
      const graph::Graph forward = with_head(parallel, classes);
      Machine alone(forward, options_for(0, 1));
      alone.feed(forward, first_values(forward));
      alone.train("loss");
      EXPECT_LT(alone.losses().back(), alone.losses().front());
      const std::vector<int> counts = classes == kClasses ? std::vector{2, 8} : std::vector{3};
      for (const int members : counts) {
        for (const parallel::Parallelism kind :
             {parallel::Parallelism::data, parallel::Parallelism::model}) {
          compare(forward, alone, {kind, {}, true}, members);
        }
      }
    }
  }
}

TEST(Programs, AlexnetLike) { compare_all(alexnet_like(7)); }
TEST(Programs, VggLike) { compare_all(vgg_like(7)); }
TEST(Programs, ResnetLike) { compare_all(resnet_like(7)); }

}  // namespace
}  // namespace millrace::testing
