#include "planner/cost/network_work.h"

#include <gmock/gmock.h>

#include <map>

#include "base/error.h"

namespace millrace::planner {
namespace {

NetworkWork work(const char* model) { return work_of(model, models::default_options(model)); }

double forward_operations(const NetworkWork& network, WorkKind kind, double samples) {
  double sum = 0;
  for (const LayerWork& layer : network.layers) {
    for (const OperatorWork& each : layer.forward) {
      if (each.kind == kind) sum += each.operations.at(samples);
    }
  }
  return sum;
}

TEST(NetworkWorkTest, KnowsBatchNormsOfOneValue) {
  EXPECT_EQ(work("resnet50").least_samples, 1);
  EXPECT_EQ(work("mobilefacenet").least_samples, 2);  // behind a convolution over the whole image
  EXPECT_EQ(work("vgg16").least_samples, 1);
}

// Parameters by torchvision's documentation.
TEST(NetworkWorkTest, CountsParameters) {
  for (const auto& [model, count] :
       {std::pair("alexnet", 61100840.0), {"vgg16", 138357544.0}, {"resnet50", 25557032.0}}) {
    const NetworkWork network = work(model);
    EXPECT_DOUBLE_EQ(parameters_of(network, 0, static_cast<int>(network.layers.size())), count);
  }
}

// Each layer of VGG-16 by hand: (side, channels in, channels out).
TEST(NetworkWorkTest, CountsArithmeticOfVgg) {
  const int layers[][3] = {{224, 3, 64},   {224, 64, 64},  {112, 64, 128}, {112, 128, 128},
                           {56, 128, 256}, {56, 256, 256}, {56, 256, 256}, {28, 256, 512},
                           {28, 512, 512}, {28, 512, 512}, {14, 512, 512}, {14, 512, 512},
                           {14, 512, 512}};
  double products = 0, outputs = 0;
  for (const auto& [side, in, out] : layers) {
    products += 1.0 * side * side * in * out * 9;
    outputs += 1.0 * side * side * out;
  }
  const NetworkWork network = work("vgg16");
  EXPECT_NEAR(forward_operations(network, WorkKind::convolution3, 7), 7 * (2 * products + outputs),
              1e3);
  EXPECT_DOUBLE_EQ(forward_operations(network, WorkKind::pointwise, 7), 0);
  const double weights = 25088.0 * 4096 + 4096.0 * 4096 + 4096.0 * 1000;
  EXPECT_NEAR(forward_operations(network, WorkKind::linear, 7), 7 * (2 * weights + 9192), 1e3);
}

TEST(NetworkWorkTest, BackwardTakesTwiceTheForwardBehindTheFirstLayer) {
  const NetworkWork network = work("resnet50");
  for (size_t i = 1; i < network.layers.size(); ++i) {
    const LayerWork& layer = network.layers[i];
    if (layer.type != "convolution") continue;
    double backward = 0;
    for (const OperatorWork& each : layer.backward) backward += each.operations.at(8);
    EXPECT_NEAR(backward / layer.forward[0].operations.at(8), 2, 0.01) << layer.name;
  }
  EXPECT_EQ(network.layers.front().backward.size(), 1u);  // no gradient of the image
}

TEST(NetworkWorkTest, CutsCountWhatCrosses) {
  const NetworkWork network = work("resnet50");
  double stem = 0, inside = 0, behind = 0;
  for (const LayerWork& layer : network.layers) {
    if (layer.name == "maxpool") stem = layer.cut.at(1);
    if (layer.name == "layer1.0.conv2") inside = layer.cut.at(1);
    if (layer.name == "layer1.1.conv1") behind = layer.cut.at(1);
  }
  const double small = 64.0 * 56 * 56, large = 256.0 * 56 * 56;
  EXPECT_DOUBLE_EQ(stem, small);
  EXPECT_DOUBLE_EQ(inside, 2 * small);      // and the input of the shortcut
  EXPECT_DOUBLE_EQ(behind, small + large);  // and the shortcut itself
  EXPECT_DOUBLE_EQ(network.layers.back().cut.at(1), 0);
  EXPECT_DOUBLE_EQ(network.input.at(2), 2.0 * 3 * 224 * 224);
}

// Conv and batch norm keep their inputs, ReLU its output; all of them by hand for the stem.
TEST(NetworkWorkTest, SavesWhatTheBackwardPassReads) {
  const NetworkWork network = work("resnet50");
  const double map = 64.0 * 112 * 112;
  Linear saved;
  for (const LayerWork& layer : network.layers) {
    saved += layer.saved;
    if (layer.name == "maxpool") break;
  }
  EXPECT_GE(saved.at(3), 3 * (2 * map + map / 4));
  EXPECT_LE(saved.at(3), 3 * (3 * map + map / 2) + 256);
}

TEST(NetworkWorkTest, UnknownModelsAreRefused) { EXPECT_THROW(work_of("vgg61", {}), InputError); }

struct Sums {
  double parameters = 0, split = 0, operations = 0;
  std::map<simulate::Collective, double> exchanged;
};

// For eight samples of each device.
Sums sums_of(const NetworkWork& network) {
  Sums sums;
  for (const LayerWork& layer : network.layers) {
    sums.parameters += layer.parameters;
    sums.split += layer.split_parameters;
    for (const auto* works : {&layer.forward, &layer.backward}) {
      for (const OperatorWork& work : *works) {
        if (work.kind == WorkKind::linear) sums.operations += work.operations.at(8);
        if (work.kind == WorkKind::exchange && works == &layer.forward) {
          sums.exchanged[work.collective] += work.elements.at(8);
        }
      }
    }
  }
  return sums;
}

// VGG-16's convolutions have 14 714 688 weights and its linear layers 123 642 856. In hybrid
// parallelism each of eight devices has an eighth of the latter, but for the 1000 biases of the
// last layer, whose inputs are divided, and gathers the 25088 features of all samples.
TEST(NetworkWorkTest, LayersThatDevicesDivide) {
  const models::ModelOptions options = models::default_options("vgg16");
  const Sums whole = sums_of(work_of("vgg16", options));
  const Sums hybrid = sums_of(work_of("vgg16", options, {parallel::Parallelism::hybrid, 8, 64}));
  EXPECT_DOUBLE_EQ(whole.parameters, 138357544);
  EXPECT_DOUBLE_EQ(whole.split, 0);
  EXPECT_TRUE(whole.exchanged.empty());
  EXPECT_DOUBLE_EQ(hybrid.split, 123641856.0 / 8);
  EXPECT_DOUBLE_EQ(hybrid.parameters, 14714688 + 123641856.0 / 8 + 1000);
  EXPECT_NEAR(hybrid.operations, whole.operations, 1e-4 * whole.operations);
  EXPECT_GE(hybrid.exchanged.at(simulate::Collective::all_gather), 64.0 * 25088);
  EXPECT_LE(hybrid.exchanged.at(simulate::Collective::all_gather),
            64.0 * (25088 + 2 * 4096 + 1000));
  const Sums model = sums_of(work_of("vgg16", options, {parallel::Parallelism::model, 8, 64}));
  EXPECT_GT(model.split, hybrid.split);
  EXPECT_LT(model.parameters, 1.01 * 138357544 / 8);
  EXPECT_GT(model.exchanged.at(simulate::Collective::all_gather),
            10 * hybrid.exchanged.at(simulate::Collective::all_gather));
}

}  // namespace
}  // namespace millrace::planner
