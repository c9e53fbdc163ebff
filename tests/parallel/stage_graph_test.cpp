#include "parallel/stage_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/random.h"
#include "compile/assembly.h"
#include "graph/builder.h"
#include "models/models.h"
#include "passes/fusion.h"
#include "runtime/session.h"

namespace millrace::parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Values = std::map<std::string, std::vector<float>>;

// A program of forward and backward together, whose results are all gradients and what it sends.
class Part {
 public:
  Part(graph::Graph graph, const passes::BackwardPass& pass) : device_({.threads = 1}) {
    for (const passes::ParameterGradient& pair : pass.parameters) graph.add_result(pair.gradient);
    kernels::KernelOptions options;
    options.convolution = kernels::ConvolutionAlgorithm::direct;
    options.threads = 1;
    program_ = compile::assemble(graph, options);
    session_ = std::make_unique<runtime::Session>(device_,
                                                  std::vector<const compile::Program*>{&program_});
    session_->initialize(11);
  }

  // Writes the inputs that are known, the others as zeros.
  void run(const Values& known, const std::vector<int32_t>& labels) {
    for (const compile::Slot& slot : program_.inputs) {
      if (slot.name == "labels") {
        session_->write_input(program_, slot.name, labels);
        continue;
      }
      const auto entry = known.find(slot.name);
      const std::vector<float> zeros(static_cast<size_t>(slot.type.elements()), 0.0f);
      session_->write_input(program_, slot.name, entry == known.end() ? zeros : entry->second);
    }
    session_->run(program_, {3, 5, 0.0f});
  }

  void read(Values& values) const {
    for (const compile::Slot& slot : program_.results) {
      values[slot.name] = session_->result(program_, slot.name);
    }
  }

 private:
  backend::Device device_;
  compile::Program program_;
  std::unique_ptr<runtime::Session> session_;
};

void expect_close(const Values& staged, const Values& whole) {
  for (const auto& [name, expected] : whole) {
    ASSERT_TRUE(staged.contains(name)) << name;
    const std::vector<float>& actual = staged.at(name);
    ASSERT_EQ(actual.size(), expected.size()) << name;
    double norm = 0;
    double difference = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      norm += std::pow(expected[i], 2);
      difference += std::pow(actual[i] - expected[i], 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(norm) + 1e-9) << name;
    EXPECT_GT(norm, 0) << name;
  }
}

// Cuts into equal runs of operators.
std::vector<int> equal_cut(const graph::Graph& graph, int stages) {
  std::vector<int> result(static_cast<size_t>(graph.operator_count()), 0);
  const auto count = std::ssize(graph.order());
  for (int64_t i = 0; i < count; ++i) {
    result[static_cast<size_t>(graph.order()[static_cast<size_t>(i)])] =
        static_cast<int>(i * stages / count);
  }
  return result;
}

// Forward stage by stage, then backward the other way, with tensors handed over by name.
void compare_with_whole(const graph::Graph& forward, const std::vector<int>& stage_of, int stages,
                        bool fused) {
  const graph::TensorId images = forward.find_tensor("images");
  const Random random(5, 5);
  Values known;
  known["images"].resize(static_cast<size_t>(forward.tensor(images).type.elements()));
  for (size_t i = 0; i < known["images"].size(); ++i) known["images"][i] = random.normal(i);
  std::vector<int32_t> labels(static_cast<size_t>(forward.tensor(images).type.shape[0]));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(i * 3 % 10);

  graph::Graph graph = forward;
  passes::BackwardPass pass = {passes::differentiate(graph, graph.find_tensor("loss")), {}};
  graph.set_results({graph.find_tensor("loss")});
  Part whole(graph, pass);
  whole.run(known, labels);
  Values expected;
  whole.read(expected);

  std::vector<StageGraph> graphs;
  std::vector<std::unique_ptr<Part>> parts;
  for (int stage = 0; stage < stages; ++stage) {
    graphs.push_back(cut(forward, stage_of, stage));
    if (fused) passes::fuse(graphs.back().graph);
    const passes::BackwardPass own = differentiate_stage(graphs.back());
    graphs.back().graph.validate();
    parts.push_back(std::make_unique<Part>(graphs.back().graph, own));
  }
  Values staged = known;
  for (const auto& part : parts) {
    part->run(staged, labels);
    part->read(staged);
  }
  Values gradients;
  for (int stage = stages - 1; stage >= 0; --stage) {
    const auto index = static_cast<size_t>(stage);
    for (const StageEdge& edge : graphs[index].sends) {
      if (!edge.has_gradient) continue;
      const std::string key = arriving_gradient(edge);
      staged[key] = gradients.at(key);
    }
    parts[index]->run(staged, labels);
    Values made;
    parts[index]->read(made);
    for (const StageEdge& edge : graphs[index].receives) {
      if (edge.has_gradient) gradients[arriving_gradient(edge)] = made.at(edge.name + ".grad");
    }
    staged.merge(made);
    for (auto& [name, values] : made) staged[name] = values;
  }
  expect_close(staged, expected);
}

graph::Graph model(const std::string& name, int64_t image) {
  models::ModelOptions options = models::default_options(name);
  options.batch = 2;
  options.image = image;
  options.classes = 10;
  return models::build_model(name, options);
}

TEST(StageGraph, ResNetInStagesComputesTheSame) {
  const graph::Graph graph = model("resnet18", 32);
  for (int stages = 2; stages <= 4; ++stages) {
    compare_with_whole(graph, equal_cut(graph, stages), stages, false);
  }
}

TEST(StageGraph, FusedStagesWithDropoutComputeTheSame) {
  graph::Builder net;
  graph::Value x = net.image(4, 3, 16, 16);
  for (const std::string name : {"a", "b", "c"}) {
    x = net.convolution(x, name, {.channels = 8, .kernel = 3, .padding = 1, .bias = true});
    x = net.relu(net.batch_norm(x, name + "_norm"));
    x = net.dropout(net.max_pool(x, {}), 0.3);
  }
  x = net.dropout(net.relu(net.linear(net.flatten(x), "d", {.features = 24})), 0.5);
  net.classify(net.linear(x, "e", {.features = 10}));
  const graph::Graph graph = net.take();
  for (int stages = 2; stages <= 6; ++stages) {
    compare_with_whole(graph, equal_cut(graph, stages), stages, true);
  }
}

// A tensor read in its own stage and two later ones, one of them not the next.
TEST(StageGraph, SkipsGoStraightToEachReader) {
  graph::Builder net;
  graph::Value x = net.convolution(net.image(2, 3, 6, 6), "a", {.channels = 4});
  const graph::Value skip = net.tanh(x);
  x = net.convolution(skip, "b", {.channels = 4});
  x = net.add(net.sigmoid(x), skip);
  x = net.convolution(x, "c", {.channels = 4});
  x = net.add(net.tanh(x), skip);
  net.classify(net.linear(net.flatten(x), "head", {.features = 10}));
  const graph::Graph graph = net.take();
  std::vector<int> stages(static_cast<size_t>(graph.operator_count()), 0);
  for (graph::OperatorId id = 0; id < graph.operator_count(); ++id) {
    stages[static_cast<size_t>(id)] = id < 3 ? 0 : id < 5 ? 1 : id < 6 ? 2 : 3;
  }
  const std::vector<StageEdge> edges = edges_between(graph, stages);
  std::vector<std::string> texts;
  for (const StageEdge& edge : edges) {
    EXPECT_TRUE(edge.has_gradient);
    texts.push_back(edge.name + " " + std::to_string(edge.from) + std::to_string(edge.to));
  }
  const std::string tanh = graph.tensor(skip.id).name;
  EXPECT_EQ(edges.size(), 5u);
  EXPECT_EQ(texts[0], tanh + " 01");
  EXPECT_EQ(texts[1], tanh + " 03");
  EXPECT_THAT(skips_among(edges), ElementsAre(std::pair(0, 3)));
  compare_with_whole(graph, stages, 4, false);
}

TEST(StageGraph, NoGradientComesBackWhereNoParameterLiesBehind) {
  graph::Builder net;
  graph::Value x = net.average_pool(net.image(2, 3, 8, 8), {});
  x = net.relu(net.linear(net.flatten(x), "a", {.features = 12}));
  net.classify(net.linear(x, "b", {.features = 10}));
  const graph::Graph graph = net.take();
  std::vector<int> stages(static_cast<size_t>(graph.operator_count()), 1);
  stages[static_cast<size_t>(graph.order()[0])] = 0;
  StageGraph first = cut(graph, stages, 0);
  StageGraph second = cut(graph, stages, 1);
  ASSERT_EQ(first.sends.size(), 1u);
  EXPECT_FALSE(first.sends[0].has_gradient);
  EXPECT_EQ(first.sends, second.receives);
  const size_t before = first.graph.order().size();
  EXPECT_TRUE(differentiate_stage(first).parameters.empty());
  EXPECT_EQ(first.graph.order().size(), before);
  const passes::BackwardPass pass = differentiate_stage(second);
  EXPECT_EQ(pass.parameters.size(), 4u);
  EXPECT_TRUE(pass.inputs.empty());
}

TEST(StageGraph, EveryOperatorAndResultIsInOneStage) {
  const graph::Graph graph = model("resnet18", 32);
  const std::vector<int> stages = equal_cut(graph, 4);
  std::map<std::string, int> operators;
  std::map<std::string, int> results;
  for (int stage = 0; stage < 4; ++stage) {
    const StageGraph part = cut(graph, stages, stage);
    for (graph::OperatorId id : part.graph.order()) ++operators[part.graph.op(id).name];
    for (graph::TensorId id : part.graph.results()) ++results[part.graph.tensor(id).name];
  }
  EXPECT_EQ(operators.size(), graph.order().size());
  for (const auto& [name, count] : operators) EXPECT_EQ(count, 1) << name;
  for (graph::TensorId id : graph.results()) EXPECT_EQ(results[graph.tensor(id).name], 1);
}

TEST(StageGraph, WeightGradientsStandApart) {
  const graph::Graph graph = model("vgg16", 32);
  const std::vector<int> stages = equal_cut(graph, 2);
  StageGraph second = cut(graph, stages, 1);
  differentiate_stage(second);
  const std::vector<graph::OperatorId> apart = passes::weight_gradient_operators(second.graph);
  std::set<graph::OperatorId> found(apart.begin(), apart.end());
  int weights = 0;
  for (graph::OperatorId id : second.graph.order()) {
    const graph::Operator& op = second.graph.op(id);
    if (op.phase != graph::Phase::backward) continue;
    EXPECT_EQ(found.contains(id), op.type.ends_with("_backward_weights")) << op.name;
    weights += op.type.ends_with("_backward_weights") ? 1 : 0;
  }
  EXPECT_GT(weights, 3);
  StageGraph first = cut(graph, stages, 0);
  differentiate_stage(first);
  int backward = 0;
  for (graph::OperatorId id : first.graph.order()) {
    backward += first.graph.op(id).phase == graph::Phase::backward ? 1 : 0;
  }
  EXPECT_EQ(std::ssize(passes::weight_gradient_operators(first.graph)), backward);
}

TEST(StageGraph, SharedParametersAreRefused) {
  graph::Builder net;
  const graph::Value x = net.flatten(net.image(2, 10, 1, 1));
  const graph::Value weight = net.parameter("w", {10, 10}, {});
  graph::Value y = net.apply("linear", "one", {x, weight});
  y = net.apply("linear", "two", {net.relu(y), weight});
  net.classify(y);
  const graph::Graph graph = net.take();
  std::vector<int> stages(static_cast<size_t>(graph.operator_count()), 0);
  for (size_t i = 3; i < stages.size(); ++i) stages[i] = 1;
  try {
    cut(graph, stages, 0);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'w' is used in stages 0 and 1"));
  }
}

}  // namespace
}  // namespace millrace::parallel
