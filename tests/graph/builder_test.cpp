#include "graph/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace millrace::graph {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using Kind = Initializer::Kind;

const Tensor& tensor_of(const Graph& graph, const std::string& name) {
  const TensorId id = graph.find_tensor(name);
  EXPECT_NE(id, kNone) << name;
  return graph.tensor(id);
}

void expect_start(const Graph& graph, const std::string& name, Kind kind, double first,
                  double second) {
  const Initializer& start = tensor_of(graph, name).initializer;
  EXPECT_EQ(start.kind, kind) << name;
  EXPECT_NEAR(start.first, first, 1e-6) << name;
  EXPECT_NEAR(start.second, second, 1e-6) << name;
}

TEST(Builder, ConvolutionStarts) {
  Builder net;
  const Value x = net.image(2, 6, 8, 8);
  net.convolution(x, "he", {.channels = 4, .kernel = 3, .groups = 2, .bias = true});
  net.convolution(x, "torch",
                  {.channels = 4,
                   .kernel = 3,
                   .groups = 2,
                   .bias = true,
                   .start = {WeightStart::Kind::torch_default}});
  const Graph graph = net.take();
  EXPECT_EQ(tensor_of(graph, "he.weight").type.shape, (Shape{4, 3, 3, 3}));
  EXPECT_EQ(tensor_of(graph, "he.weight").role, Role::parameter);
  expect_start(graph, "he.weight", Kind::normal, 0, std::sqrt(2.0 / 36));
  expect_start(graph, "he.bias", Kind::constant, 0, 0);
  const double bound = 1 / std::sqrt(27.0);
  expect_start(graph, "torch.weight", Kind::uniform, -bound, bound);
  expect_start(graph, "torch.bias", Kind::uniform, -bound, bound);
}

TEST(Builder, LinearStarts) {
  Builder net;
  const Value x = net.flatten(net.image(2, 4, 2, 2));
  net.linear(x, "torch", {.features = 5});
  net.linear(x, "normal",
             {.features = 5, .start = {WeightStart::Kind::normal, 0.02f}, .zero_bias = true});
  net.linear(x, "bare", {.features = 5, .bias = false});
  const Graph graph = net.take();
  expect_start(graph, "torch.weight", Kind::uniform, -0.25, 0.25);
  expect_start(graph, "torch.bias", Kind::uniform, -0.25, 0.25);
  expect_start(graph, "normal.weight", Kind::normal, 0, 0.02);
  expect_start(graph, "normal.bias", Kind::constant, 0, 0);
  EXPECT_EQ(graph.find_tensor("bare.bias"), kNone);
}

TEST(Builder, BatchNormTensors) {
  Builder net;
  net.batch_norm(net.image(2, 4, 2, 2), "bn", {.scale = 0.5f});
  const Graph graph = net.take();
  expect_start(graph, "bn.weight", Kind::constant, 0.5, 0);
  expect_start(graph, "bn.bias", Kind::constant, 0, 0);
  expect_start(graph, "bn.running_mean", Kind::constant, 0, 0);
  expect_start(graph, "bn.running_var", Kind::constant, 1, 0);
  EXPECT_EQ(tensor_of(graph, "bn.bias").role, Role::parameter);
  EXPECT_EQ(tensor_of(graph, "bn.running_var").role, Role::buffer);
}

TEST(Builder, ClassifyNamesItsResults) {
  Builder net;
  net.classify(net.linear(net.flatten(net.image(2, 3, 2, 2)), "fc", {.features = 3}));
  const Graph graph = net.take();
  std::vector<std::string> names;
  for (TensorId id : graph.results()) names.push_back(graph.tensor(id).name);
  EXPECT_THAT(names, testing::UnorderedElementsAre("loss", "top1", "top5", "logits"));
  EXPECT_EQ(tensor_of(graph, "labels").type, (TensorType{{2}, DataType::s32}));
  EXPECT_EQ(tensor_of(graph, "labels").role, Role::input);
  const Operator& top5 = graph.op(tensor_of(graph, "top5").producer);
  EXPECT_EQ(top5.attributes.integer("k"), 3);
  EXPECT_NO_THROW(graph.validate());
}

TEST(Builder, DropoutStreamsFollowTheirNames) {
  Builder net;
  const Value x = net.image(1, 1, 2, 2);
  net.dropout(net.dropout(x, 0.5), 0.5);
  const Graph graph = net.take();
  for (OperatorId id : {0, 1}) {
    const std::string& name = graph.op(id).name;
    EXPECT_EQ(graph.op(id).attributes.integer("stream"),
              static_cast<int64_t>(hash_bytes(name.data(), name.size())));
  }
  EXPECT_NE(graph.op(0).name, graph.op(1).name);
}

TEST(Builder, RefusesWhatCannotBeBuilt) {
  Builder net;
  const Value x = net.image(2, 3, 5, 5);
  EXPECT_THAT([&] { net.convolution(x, "big", {.channels = 4, .kernel = 7}); },
              ThrowsMessage<InputError>(
                  "Layer 'big' (convolution): needs an image of at least 7x7 here but gets 5x5"));
  EXPECT_THAT([&] { net.convolution(x, "odd", {.channels = 4, .groups = 2}); },
              ThrowsMessage<InputError>(HasSubstr("divides 3 input channels but gets 2")));
  EXPECT_THAT([&] { net.convolution(x, "none", {.channels = 0}); },
              ThrowsMessage<InputError>(HasSubstr("'none.weight' cannot have the shape 0x3x1x1")));
  EXPECT_THAT([&] { net.linear(x, "fc", {.features = 4}); },
              ThrowsMessage<InputError>(HasSubstr("Layer 'fc' (linear)")));
  net.convolution(x, "twice", {.channels = 4});
  EXPECT_THAT([&] { net.convolution(x, "twice", {.channels = 4}); },
              ThrowsMessage<InputError>(HasSubstr("two tensors named 'twice.weight'")));
  Builder empty;
  EXPECT_THROW(empty.image(0, 3, 5, 5), InputError);
  EXPECT_THROW(empty.image(int64_t{1} << 40, int64_t{1} << 40, 5, 5), InputError);
}

}  // namespace
}  // namespace millrace::graph
