#include "models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <sstream>

#include "base/error.h"
#include "graph/operator_definition.h"

namespace millrace::models {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Lines = std::vector<std::string>;

// Lines "name shape kind" of each model, as PyTorch has them.
std::map<std::string, Lines> pytorch_lines(const Lines& models) {
  std::string command = "/usr/bin/python3 '" MILLRACE_TEST_DATA "/torch_parameters.py'";
  for (const std::string& model : models) command += " " + model;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + command);
  std::string text;
  std::array<char, 4096> buffer;
  while (const size_t count = fread(buffer.data(), 1, buffer.size(), pipe)) {
    text.append(buffer.data(), count);
  }
  if (pclose(pipe) != 0) throw std::runtime_error(command + " failed");
  std::map<std::string, Lines> lines;
  std::istringstream stream(text);
  for (std::string model, rest; stream >> model && std::getline(stream >> std::ws, rest);) {
    lines[model].push_back(rest);
  }
  return lines;
}

Lines own_lines(const graph::Graph& graph) {
  Lines lines;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    const graph::Tensor& tensor = graph.tensor(id);
    if (tensor.role != graph::Role::parameter && tensor.role != graph::Role::buffer) continue;
    lines.push_back(fmt::format("{} {} {}", tensor.name, graph::to_string(tensor.type.shape),
                                graph::name_of(tensor.role)));
  }
  return lines;
}

// A batch of two, as face networks normalise over the batch alone.
graph::Graph usual_model(const std::string& name) {
  ModelOptions options = default_options(name);
  options.batch = is_face_model(name) ? 2 : 1;
  return build_model(name, options);
}

int64_t parameters_of(const graph::Graph& graph) {
  int64_t count = 0;
  for (graph::TensorId id = 0; id < graph.tensor_count(); ++id) {
    if (graph.tensor(id).role == graph::Role::parameter) count += graph.tensor(id).type.elements();
  }
  return count;
}

int64_t count_type(const graph::Graph& graph, const std::string& type) {
  int64_t count = 0;
  for (graph::OperatorId id : graph.order()) count += graph.op(id).type == type ? 1 : 0;
  return count;
}

const graph::Initializer& start_of(const graph::Graph& graph, const std::string& name) {
  return graph.tensor(graph.find_tensor(name)).initializer;
}

TEST(Models, HavePyTorchsParametersInItsOrder) {
  Lines names = model_names();
  std::erase(names, "fashion_cnn");
  const auto expected = pytorch_lines(names);
  ASSERT_EQ(expected.size(), names.size());
  for (const std::string& name : names) {
    EXPECT_EQ(own_lines(usual_model(name)), expected.at(name)) << name;
  }
}

TEST(Models, HaveThePublishedNumbersOfParameters) {
  EXPECT_EQ(parameters_of(usual_model("alexnet")), 61100840);
  EXPECT_EQ(parameters_of(usual_model("vgg16")), 138357544);
  EXPECT_EQ(parameters_of(usual_model("resnet18")), 11689512);
  EXPECT_EQ(parameters_of(usual_model("resnet50")), 25557032);
  EXPECT_EQ(parameters_of(usual_model("resnet152")), 60192808);
  EXPECT_EQ(parameters_of(usual_model("resnext50_32x4d")), 25028904);
  EXPECT_EQ(parameters_of(usual_model("wide_resnet50_2")), 68883240);
  EXPECT_EQ(parameters_of(usual_model("densenet121")), 7978856);
  EXPECT_EQ(parameters_of(usual_model("squeezenet1_1")), 1235496);
  EXPECT_EQ(parameters_of(usual_model("mobilenet_v2")), 3504872);
  EXPECT_EQ(parameters_of(usual_model("mobilenet_v3_large")), 5483032);
  EXPECT_EQ(parameters_of(usual_model("efficientnet_b0")), 5288548);
}

// InsightFace's own count for its models, without a head: 24.03 M, 34.14 M, 43.59 M, 65.15 M.
TEST(Models, FaceNetworksHaveTheirPublishedSize) {
  const auto millions = [](const std::string& name) {
    ModelOptions options = default_options(name);
    options.batch = 2;
    options.classifier = false;
    return static_cast<double>(parameters_of(build_model(name, options))) / 1e6;
  };
  EXPECT_NEAR(millions("iresnet18"), 24.02, 0.01);
  EXPECT_NEAR(millions("iresnet34"), 34.13, 0.01);
  EXPECT_NEAR(millions("iresnet50"), 43.59, 0.01);
  EXPECT_NEAR(millions("iresnet100"), 65.15, 0.02);
  EXPECT_NEAR(millions("mobilefacenet"), 2.06, 0.03);
}

TEST(Models, FaceNetworksEndInAnEmbedding) {
  const auto results = [](const graph::Graph& graph) {
    Lines names;
    for (const graph::TensorId id : graph.results()) names.push_back(graph.tensor(id).name);
    return names;
  };
  for (const std::string& name : model_names()) {
    if (!is_face_model(name)) continue;
    ModelOptions options = default_options(name);
    EXPECT_EQ(options.image, 112) << name;
    options.batch = 3;
    const graph::Graph whole = build_model(name, options);
    EXPECT_EQ(results(whole), (Lines{"loss", "top1", "top5", "logits", "embedding"})) << name;
    options.classifier = false;
    const graph::Graph alone = build_model(name, options);
    EXPECT_NO_THROW(alone.validate()) << name;
    EXPECT_EQ(results(alone), Lines{"embedding"}) << name;
    EXPECT_EQ(alone.tensor(alone.find_tensor("embedding")).type.shape, (graph::Shape{3, 512}))
        << name;
    EXPECT_EQ(alone.find_tensor("labels"), graph::kNone) << name;
  }
  EXPECT_THAT([] { build_model("resnet18", {.classifier = false}); },
              ThrowsMessage<InputError>(HasSubstr("gives no embeddings")));
}

TEST(Models, ScaleOfTheFeaturesIsNotTrained) {
  const graph::Graph graph = usual_model("iresnet18");
  EXPECT_EQ(graph.tensor(graph.find_tensor("features.weight")).role, graph::Role::buffer);
  EXPECT_EQ(start_of(graph, "features.weight").first, 1.0f);
  EXPECT_EQ(graph.tensor(graph.find_tensor("features.bias")).role, graph::Role::parameter);
}

TEST(Models, HaveThePublishedArithmetic) {
  const std::map<std::string, double> giga_multiply_adds = {
      {"alexnet", 0.71},          {"vgg16", 15.47},           {"resnet18", 1.81},
      {"resnet50", 4.09},         {"resnet152", 11.51},       {"iresnet50", 6.31},
      {"iresnet100", 12.10},      {"resnext50_32x4d", 4.23},  {"densenet121", 2.834},
      {"squeezenet1_1", 0.349},   {"mobilenet_v2", 0.301},    {"mobilenet_v3_large", 0.217},
      {"efficientnet_b0", 0.386}, {"wide_resnet50_2", 11.398}};
  for (const auto& [name, expected] : giga_multiply_adds) {
    const graph::Graph graph = usual_model(name);
    double count = 0;
    for (graph::OperatorId id : graph.order()) {
      const graph::Operator& op = graph.op(id);
      if (op.type != "convolution" && op.type != "linear") continue;
      graph::Inference inference = {op, {}};
      for (size_t i = 0; i < 2; ++i) inference.inputs.push_back(graph.tensor(op.inputs[i]).type);
      count += graph::definition_of(op.type).arithmetic(inference) / 2e9 /
               static_cast<double>(inference.shape(0)[0]);
    }
    EXPECT_NEAR(count, expected, 0.01 * expected) << name;
  }
}

TEST(Models, AreValidForSeveralSizes) {
  for (const std::string& name : model_names()) {
    for (const int64_t image : {64, 97, 224}) {
      const graph::Graph graph = build_model(
          name, {.batch = 4, .classes = 7, .image = image, .channels = 1, .dropout = false});
      EXPECT_NO_THROW(graph.validate()) << name;
      EXPECT_EQ(graph.tensor(graph.find_tensor("logits")).type.shape, (graph::Shape{4, 7})) << name;
      EXPECT_EQ(count_type(graph, "dropout"), 0) << name;
    }
  }
}

TEST(Models, FashionNetworkIsSmall) {
  const graph::Graph graph = usual_model("fashion_cnn");
  EXPECT_EQ(graph.tensor(graph.find_tensor("images")).type.shape, (graph::Shape{1, 1, 28, 28}));
  EXPECT_EQ(graph.tensor(graph.find_tensor("logits")).type.shape, (graph::Shape{1, 10}));
  EXPECT_GE(parameters_of(graph), 300000);
  EXPECT_LE(parameters_of(graph), 1000000);
}

TEST(Models, LeaveOutPoolsThatDoNothing) {
  const ModelOptions usual;
  EXPECT_EQ(count_type(build_model("alexnet", usual), "adaptive_average_pool"), 0);
  EXPECT_EQ(count_type(build_model("vgg16", usual), "adaptive_average_pool"), 0);
  ModelOptions larger;
  larger.image = 288;
  EXPECT_EQ(count_type(build_model("alexnet", larger), "adaptive_average_pool"), 1);
  EXPECT_EQ(count_type(build_model("vgg16", larger), "adaptive_average_pool"), 1);
  EXPECT_EQ(count_type(build_model("resnet18", usual), "global_average_pool"), 1);
  EXPECT_EQ(count_type(build_model("resnet18", {.batch = 2, .image = 32}), "global_average_pool"),
            0);
}

TEST(Models, DropoutAndSmoothingFollowTheOptions) {
  const graph::Graph graph = build_model("vgg16", {.label_smoothing = 0.1});
  EXPECT_EQ(count_type(graph, "dropout"), 2);
  const graph::Operator& loss = graph.op(graph.tensor(graph.find_tensor("loss")).producer);
  EXPECT_EQ(loss.attributes.number("label_smoothing"), 0.1);
}

// As torchvision trains it: the later a block, the more samples skip it.
TEST(Models, EfficientNetDropsSamplesOfBlocks) {
  const graph::Graph graph = usual_model("efficientnet_b0");
  std::vector<double> rates;
  for (const graph::OperatorId id : graph.order()) {
    const graph::Operator& op = graph.op(id);
    if (op.attributes.flag("by_sample")) rates.push_back(op.attributes.number("rate"));
  }
  ASSERT_EQ(rates.size(), 9u);
  EXPECT_NEAR(rates.front(), 0.2 * 2 / 16, 1e-9);
  EXPECT_NEAR(rates.back(), 0.2 * 14 / 16, 1e-9);
}

TEST(Models, StartAsTorchvisionDoes) {
  const graph::Graph vgg = usual_model("vgg16");
  EXPECT_EQ(start_of(vgg, "features.0.weight").kind, graph::Initializer::Kind::normal);
  EXPECT_NEAR(start_of(vgg, "features.0.weight").second, std::sqrt(2.0 / (64 * 9)), 1e-6);
  EXPECT_EQ(start_of(vgg, "features.0.bias").kind, graph::Initializer::Kind::constant);
  EXPECT_NEAR(start_of(vgg, "classifier.0.weight").second, 0.01, 1e-8);
  EXPECT_EQ(start_of(vgg, "classifier.0.bias").kind, graph::Initializer::Kind::constant);
  const graph::Graph dense = usual_model("densenet121");
  EXPECT_NEAR(start_of(dense, "features.denseblock1.denselayer1.conv2.weight").second,
              std::sqrt(2.0 / (128 * 9)), 1e-6);
  EXPECT_NEAR(start_of(dense, "classifier.weight").second, 1 / 32.0, 1e-6);
  EXPECT_EQ(start_of(dense, "classifier.bias").kind, graph::Initializer::Kind::constant);
  const graph::Graph squeeze = usual_model("squeezenet1_1");
  EXPECT_EQ(start_of(squeeze, "features.3.squeeze.weight").kind, graph::Initializer::Kind::uniform);
  EXPECT_NEAR(start_of(squeeze, "features.3.squeeze.weight").second, std::sqrt(6.0 / 64), 1e-6);
  EXPECT_NEAR(start_of(squeeze, "classifier.1.weight").second, 0.01, 1e-8);
  EXPECT_EQ(start_of(squeeze, "classifier.1.bias").kind, graph::Initializer::Kind::constant);
  const graph::Graph efficient = usual_model("efficientnet_b0");
  EXPECT_NEAR(start_of(efficient, "classifier.1.weight").second, 1 / std::sqrt(1000.0), 1e-6);
  const graph::Graph resnet = usual_model("resnet50");
  EXPECT_NEAR(start_of(resnet, "conv1.weight").second, std::sqrt(2.0 / (64 * 49)), 1e-6);
  EXPECT_EQ(start_of(resnet, "fc.weight").kind, graph::Initializer::Kind::uniform);
  EXPECT_NEAR(start_of(resnet, "fc.bias").second, 1 / std::sqrt(2048.0), 1e-6);
  const graph::Graph alexnet = usual_model("alexnet");
  EXPECT_NEAR(start_of(alexnet, "features.0.weight").second, 1 / std::sqrt(3 * 121.0), 1e-6);
  EXPECT_NEAR(start_of(alexnet, "features.0.bias").second, 1 / std::sqrt(3 * 121.0), 1e-6);
}

TEST(Models, ResNetStridesInTheThreeByThree) {
  const graph::Graph graph = usual_model("resnet50");
  const auto stride = [&](const std::string& name) {
    return graph.op(graph.tensor(graph.find_tensor(name)).producer).attributes.integers("stride");
  };
  EXPECT_EQ(stride("layer2.0.conv1"), (graph::Attributes::Integers{1, 1}));
  EXPECT_EQ(stride("layer2.0.conv2"), (graph::Attributes::Integers{2, 2}));
}

TEST(Models, UnknownNamesGetASuggestion) {
  EXPECT_THAT([] { build_model("resnet5", {}); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("no model 'resnet5'"),
                                              HasSubstr("did you mean 'resnet"),
                                              HasSubstr("alexnet, vgg16, vgg16_bn, resnet18"))));
  EXPECT_THAT([] { default_options("zzzzzzzzzz"); },
              ThrowsMessage<InputError>(testing::Not(HasSubstr("did you mean"))));
}

TEST(Models, SmallImagesGetTheSmallestThatWorks) {
  EXPECT_THAT([] { build_model("alexnet", {.image = 32}); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("Model 'alexnet'"), HasSubstr("32x32"),
                                              HasSubstr("Layer 'features.12'"),
                                              HasSubstr("works from 63x63"))));
  EXPECT_NO_THROW(build_model("alexnet", {.image = 63}));
  EXPECT_THROW(build_model("alexnet", {.image = 62}), InputError);
  EXPECT_THAT([] { build_model("vgg16", {.image = 31}); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("Layer 'features.30'"), HasSubstr("works from 32x32"))));
  EXPECT_THAT(
      [] { build_model("resnet18", {.batch = 1, .image = 32}); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("layer4.0.bn1"), HasSubstr("works from 33x33"))));
}

// Every network is built with the smallest image and refused with one pixel less; the sizes of
// networks that only shrink follow from their layers: three pools by two and a convolution by four
// in AlexNet, five pools in VGG.
TEST(Models, SmallestImageIsTheLeastThatWorks) {
  for (const std::string& name : model_names()) {
    ModelOptions options = default_options(name);
    options.batch = 2;
    options.image = -1;  // not looked at
    options.image = smallest_image(name, options);
    EXPECT_NO_THROW(build_model(name, options)) << name;
    --options.image;
    EXPECT_THROW(build_model(name, options), InputError) << name;
  }
  EXPECT_EQ(smallest_image("alexnet", {}), 63);
  EXPECT_EQ(smallest_image("vgg16", {}), 32);
  // One sample alone has nothing to be normalised with in a layer of one pixel.
  EXPECT_EQ(smallest_image("resnet18", {.batch = 1}), 33);
  EXPECT_EQ(smallest_image("resnet18", {.batch = 2}), 1);
  EXPECT_THROW(smallest_image("resnet19", {}), InputError);
}

// A plan names layers to cut after, and holds for any size of image.
TEST(Models, LayersAreCalledTheSameWithAnyImage) {
  const auto names = [](const graph::Graph& graph) {
    Lines lines;
    for (const graph::OperatorId id : graph.order()) {
      const graph::Operator& op = graph.op(id);
      if (op.type != "adaptive_average_pool") lines.push_back(op.name);
    }
    return lines;
  };
  for (const std::string model : {"alexnet", "vgg16"}) {
    EXPECT_EQ(names(build_model(model, {.image = 224})), names(build_model(model, {.image = 64})));
  }
}

TEST(Models, RefuseOptionsOutOfRange) {
  EXPECT_THROW(build_model("resnet18", {.batch = 0}), InputError);
  EXPECT_THROW(build_model("resnet18", {.classes = 0}), InputError);
  EXPECT_THROW(build_model("resnet18", {.image = -5}), InputError);
  EXPECT_THROW(build_model("resnet18", {.channels = int64_t{1} << 60}), InputError);
  EXPECT_THROW(build_model("resnet18", {.label_smoothing = 2}), InputError);
}

}  // namespace
}  // namespace millrace::models
