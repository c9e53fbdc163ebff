// A margin head compiled and run as a program.
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "compile/compiler.h"
#include "graph/builder.h"
#include "runtime/session.h"
#include "session_support.h"

namespace millrace::runtime {
namespace {

constexpr int64_t kBatch = 12;
constexpr int64_t kDimension = 32;

graph::Graph head_graph(const graph::MarginHeadOptions& options, int64_t width = kDimension) {
  graph::Builder net;
  net.margin_head(net.input("embeddings", {kBatch, width}), options);
  return net.take();
}

compile::CompileOptions compile_options(const char* name) {
  compile::CompileOptions options;
  options.kernels.threads = 2;
  options.optimizer.name = name;
  return options;
}

void feed(Session& session, const compile::Program& program, int64_t classes) {
  const Random random(3, 3);
  std::vector<float> embeddings(static_cast<size_t>(kBatch * kDimension));
  for (size_t i = 0; i < embeddings.size(); ++i) embeddings[i] = random.normal(i);
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < kBatch; ++i) {
    labels.push_back(static_cast<int32_t>(i * 977 % classes));
  }
  session.write_input(program, "embeddings", embeddings);
  session.write_input(program, "labels", labels);
}

TEST(HeadProgram, CentresComeToTheirEmbeddings) {
  for (const std::string& name : std::vector<std::string>{"sgd", "adamw", "lars"}) {
    for (const graph::DataType storage :
         {graph::DataType::f32, graph::DataType::bf16, graph::DataType::f16}) {
      for (const double rate : {1.0, 0.1}) {
        graph::MarginHeadOptions head = {.classes = 1000, .addend = 0.5, .scale = 16};
        head.storage = storage;
        head.sample_rate = rate;
        const compile::Program program =
            compile::compile_training(head_graph(head), compile_options(name.c_str()));
        backend::Device device({.threads = 2});
        Session session(device, {&program});
        session.initialize(1);
        feed(session, program, head.classes);
        const float learning_rate = name == "adamw" ? 0.01f : 0.02f;
        session.run(program, {1, 0, learning_rate});
        const float first = session.scalar(program, "loss");
        for (int64_t step = 1; step < 25; ++step) session.run(program, {1, step, learning_rate});
        EXPECT_GT(first, 5);
        EXPECT_LT(session.scalar(program, "loss"), 0.5f * first)
            << name << " " << graph::name_of(storage) << " " << rate;
      }
    }
  }
}

TEST(HeadProgram, OnlySampledCentresChange) {
  const graph::MarginHeadOptions head = {.classes = 5000,
                                         .sample_rate = 0.1};  // lazy: none is late yet
  const compile::Program program =
      compile::compile_training(head_graph(head), compile_options("sgd"));
  backend::Device device({.threads = 2});
  Session session(device, {&program});
  session.initialize(1);
  feed(session, program, head.classes);
  const auto before = state_of(session, "head.centres");
  session.run(program, {1, 0, 0.1f});
  const auto after = state_of(session, "head.centres");
  const auto momentum = state_of(session, "head.centres.momentum");
  int64_t changed = 0;
  for (size_t row = 0; row < 5000; ++row) {
    const size_t at = row * kDimension;
    const bool moved = !std::equal(before.begin() + static_cast<int64_t>(at),
                                   before.begin() + static_cast<int64_t>(at) + kDimension,
                                   after.begin() + static_cast<int64_t>(at));
    changed += moved ? 1 : 0;
    EXPECT_TRUE(moved || momentum[at] == 0);
  }
  EXPECT_EQ(changed, 500);
}

// A part of the classes starts with the values that it has in the whole.
TEST(HeadProgram, PartsStartAsTheWholeDoes) {
  const auto start = [](const graph::MarginHeadOptions& head) {
    const compile::Program program =
        compile::compile_training(head_graph(head), compile_options("sgd"));
    backend::Device device({.threads = 1});
    Session session(device, {&program});
    session.initialize(5);
    return state_of(session, "head.centres");
  };
  // Larger than the pieces in which it is filled.
  const int64_t classes = 150'000;
  const auto whole = start({.classes = classes});
  double squares = 0;
  for (const float x : whole) squares += static_cast<double>(x) * x;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(whole.size())), 0.01, 1e-4);
  const auto part = start({.classes = classes, .class_begin = 70'001, .local_classes = 333});
  EXPECT_EQ(part, std::vector<float>(whole.begin() + 70'001 * kDimension,
                                     whole.begin() + 70'334 * kDimension));
}

TEST(HeadProgram, MemoryBesideCentresAndStateDoesNotGrow) {
  const auto beside = [](int64_t classes, double rate, int threads) {
    graph::MarginHeadOptions head = {.classes = classes, .sample_rate = rate};
    head.cache_bytes = int64_t{1} << 20;
    compile::CompileOptions options = compile_options("sgd");
    options.kernels.threads = threads;
    const compile::Program program = compile::compile_training(head_graph(head), options);
    EXPECT_GE(program.breakdown.weights, classes * kDimension * 4);
    EXPECT_EQ(program.breakdown.gradients, 0);
    return program.arena_bytes - program.breakdown.weights - program.breakdown.optimizer;
  };
  for (const double rate : {1.0, 0.1}) {
    EXPECT_EQ(beside(1'000'000, rate, 2), beside(29'000'000, rate, 2)) << rate;
    EXPECT_LT(beside(29'000'000, rate, 2), int64_t{4} << 20);
  }
}

TEST(HeadProgram, EvaluationLeavesTheHeadOut) {
  graph::Builder net;
  const graph::Value image = net.image(2, 3, 8, 8);
  const graph::Value embedding = net.linear(net.flatten(image), "fc", {.features = 16});
  net.margin_head(embedding, {.classes = 100, .addend = 0.5});
  net.result(embedding, "embedding");
  const graph::Graph graph = net.take();
  const compile::CompileOptions options = compile_options("sgd");
  const compile::Program training = compile::compile_training(graph, options);
  const compile::Program evaluation = compile::compile_evaluation(graph, options, training);
  for (const compile::Instruction& instruction : evaluation.instructions) {
    EXPECT_FALSE(instruction.type.starts_with("margin_head")) << instruction.name;
    EXPECT_NE(instruction.type, "l2_normalize");
  }
  ASSERT_EQ(evaluation.results.size(), 1u);
  EXPECT_EQ(evaluation.results[0].name, "embedding");
  EXPECT_EQ(evaluation.results[0].type.shape, (graph::Shape{2, 16}));
  backend::Device device({.threads = 2});
  Session session(device, {&training, &evaluation});
  session.initialize(1);
  std::vector<float> images(2 * 3 * 8 * 8, 0.5f);
  session.write_input(evaluation, "images", images);
  session.run(evaluation, {});
  const auto before = session.result(evaluation, "embedding");
  session.write_input(training, "images", images);
  session.write_input(training, "labels", std::vector<int32_t>{3, 99});
  session.run(training, {1, 0, 0.1f});
  session.write_input(evaluation, "images", images);
  session.run(evaluation, {});
  EXPECT_NE(before, session.result(evaluation, "embedding"));
}

}  // namespace
}  // namespace millrace::runtime
