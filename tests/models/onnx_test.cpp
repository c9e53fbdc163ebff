#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "base/error.h"
#include "models/models.h"
#include "models/onnx/exporter.h"
#include "models/onnx/importer.h"
#include "models/onnx/wire.h"

namespace millrace::models::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kClasses = 4;

// Numbers that differ from each other and from tensor to tensor.
std::vector<float> numbered(const graph::Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.type.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(tensor.name.size()) + 0.25f * static_cast<float>(i % 100);
  }
  return values;
}

graph::Graph every_layer() {
  graph::Builder net;
  graph::Value x = net.image(2, 3, 9, 9);
  x = net.convolution(x, "first", {.channels = 6, .kernel = 3, .stride = 2, .padding = 1});
  x = net.relu6(net.batch_norm(x, "norm", {.epsilon = 1e-3, .momentum = 0.2}));
  x = net.prelu(net.convolution(x, "second", {.channels = 6, .groups = 3, .bias = true}), "slopes");
  x = net.concat({net.sigmoid(x), net.tanh(x), net.add(x, net.relu(x))}, 1);
  x = net.scale_channels(net.silu(x), net.hardsigmoid(net.global_average_pool(x)));
  x = net.max_pool(net.hardswish(x), {.kernel = 3, .stride = 1, .padding = 1});
  x = net.average_pool(x, {.kernel = 2, .stride = 1, .count_include_pad = false});
  x = net.adaptive_average_pool(x, 3, 3);
  net.classify(net.linear(net.flatten(x), "last", {.features = kClasses}));
  return net.take();
}

class OnnxTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/millrace-onnx-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // The sentence with which a file of this model is refused as a network.
  std::string refusal_of(const Model& model) {
    write_model(model, directory_ / "net.onnx");
    try {
      default_options(kOnnxPrefix + (directory_ / "net.onnx").string());
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  static Model exported(ExportSettings settings = {}) {
    settings.result = "logits";
    return export_graph(every_layer(), numbered, settings);
  }

  std::filesystem::path directory_;
};

TEST_F(OnnxTest, EveryLayerComesBackAsItWas) {
  write_model(exported(), directory_ / "net.onnx");
  const ModelFile file(directory_ / "net.onnx");
  graph::Builder net;
  const ImportedNetwork network =
      import_model(file.model(), {.batch = 2, .classes = 0, .image = 0, .channels = 0}, net);
  EXPECT_EQ(network.image, 9);
  EXPECT_EQ(network.channels, 3);
  EXPECT_EQ(network.features, kClasses);
  net.classify(network.output);
  const graph::Graph now = net.take(), was = every_layer();
  ASSERT_EQ(now.order().size(), was.order().size());
  for (size_t i = 0; i < was.order().size(); ++i) {
    const graph::Operator& before = was.op(was.order()[i]);
    const graph::Operator& after = now.op(now.order()[i]);
    EXPECT_EQ(before.type, after.type);
    if (before.type == "batch_norm") {
      EXPECT_NEAR(after.attributes.number("epsilon"), 1e-3, 1e-9);
      EXPECT_NEAR(after.attributes.number("momentum"), 0.2, 1e-7);
    } else {
      EXPECT_EQ(before.attributes, after.attributes) << before.name;
    }
    EXPECT_EQ(was.tensor(before.outputs[0]).type, now.tensor(after.outputs[0]).type);
  }
  for (const ImportedWeight& weight : network.weights) {
    const graph::TensorId id = was.find_tensor(weight.name);
    ASSERT_NE(id, graph::kNone) << weight.name;
    EXPECT_EQ(weight.shape, was.tensor(id).type.shape);
    EXPECT_EQ(weight.data.numbers(), numbered(was.tensor(id))) << weight.name;
  }
}

TEST_F(OnnxTest, FoldingLeavesNoNormAndComputesItsScaleAndShift) {
  const Model model = exported({.fold = true});
  for (const Node& node : model.nodes) EXPECT_NE(node.type, "BatchNormalization");
  const graph::Graph graph = every_layer();
  const auto values = [&](const char* name) {
    return numbered(graph.tensor(graph.find_tensor(name)));
  };
  const auto find = [&](const char* name) {
    for (const TensorData& tensor : model.initializers) {
      if (tensor.name == name) return tensor.numbers();
    }
    return std::vector<float>();
  };
  const auto weight = find("first.weight"), bias = find("first.bias");
  ASSERT_EQ(bias.size(), 6u);
  for (size_t channel = 0; channel < 6; ++channel) {
    const double factor =
        values("norm.weight")[channel] / std::sqrt(values("norm.running_var")[channel] + 1e-3);
    EXPECT_NEAR(bias[channel],
                values("norm.bias")[channel] - values("norm.running_mean")[channel] * factor, 1e-4);
    EXPECT_NEAR(weight[channel * 27 + 5], values("first.weight")[channel * 27 + 5] * factor, 1e-4);
  }
}

TEST_F(OnnxTest, TheBatchIsOpenAndTheLossLeftOut) {
  const Model model = exported();
  ASSERT_EQ(model.inputs.size(), 1u);
  EXPECT_EQ(model.inputs[0].shape.at(0).symbol, "batch");
  EXPECT_EQ(model.outputs.at(0).name, "logits");
  EXPECT_EQ(model.outputs[0].shape.at(0).symbol, "batch");
}

TEST_F(OnnxTest, RefusesOpsetsThatItDoesNotWrite) {
  for (const int64_t opset : {12, 22}) {
    EXPECT_THROW(exported({.opset = opset}), InputError) << opset;
  }
  EXPECT_EQ(exported({.opset = 21}).ir_version, 10);
}

TEST_F(OnnxTest, NamesANodeThatIsNotSupportedAndHowManyMore) {
  Model model = exported();
  model.nodes[2].type = "Gelu";
  model.nodes[2].name = "/features/act";
  EXPECT_THAT(refusal_of(model), HasSubstr("node '/features/act' (Gelu) is not supported."));
  model.nodes[5].type = "Erf";
  EXPECT_THAT(refusal_of(model), HasSubstr("nor are 1 more (all of them: Erf, Gelu)"));
}

TEST_F(OnnxTest, NamesOfAnyBytesLeaveTheSentenceOnOneLine) {
  Model model = exported();
  model.nodes[2].type = "Gelu";
  model.nodes[2].name = "two\nlines\x1B\xFF";
  EXPECT_THAT(refusal_of(model), HasSubstr("node 'two\\x0alines\\x1b\\xff' (Gelu)"));
}

TEST_F(OnnxTest, RefusesFilesThatDoNotHangTogether) {
  Model model = exported();
  model.initializers[0].shape[0] = 7;
  EXPECT_THAT(refusal_of(model), HasSubstr("needs 756 bytes but has 648"));
  model = exported();
  model.nodes[3].inputs[0] = "nowhere";
  EXPECT_THAT(refusal_of(model), HasSubstr("reads 'nowhere', which nothing before it gives"));
  model = exported();
  model.outputs[0].name = "other";
  EXPECT_THAT(refusal_of(model), HasSubstr("nothing computes its output 'other'"));
  model = exported();
  model.inputs.push_back(model.inputs[0]);
  model.inputs.back().name = "mask";
  EXPECT_THAT(refusal_of(model), HasSubstr("the inputs 'images' and 'mask'"));
  model = exported();
  model.inputs[0].shape[3].number = 12;
  EXPECT_THAT(refusal_of(model), HasSubstr("they must be square"));
}

TEST_F(OnnxTest, NodesWithoutInputsAreRefusedWhateverTheyAre) {
  const Model whole = exported();
  for (size_t i = 0; i < whole.nodes.size(); ++i) {
    if (whole.nodes[i].type == "Constant") continue;
    Model model = whole;
    model.nodes[i].inputs.clear();
    EXPECT_THAT(refusal_of(model), HasSubstr("reads nothing")) << model.nodes[i].type;
  }
}

TEST_F(OnnxTest, PaddingOfOneSideMakesTheWindowLargerByZeros) {
  Model model = exported();
  for (NodeAttribute& each : model.nodes[0].attributes) {
    if (each.name == "pads") each.integers = {0, 1, 1, 1};
  }
  graph::Builder net;
  const ImportedNetwork network =
      import_model(model, {.batch = 2, .classes = 0, .image = 10, .channels = 0}, net);
  const auto first = std::find_if(network.weights.begin(), network.weights.end(),
                                  [](const auto& each) { return each.name == "first.weight"; });
  ASSERT_NE(first, network.weights.end());
  EXPECT_THAT(first->shape, ElementsAre(6, 3, 4, 3));
  const std::vector<float> values = first->data.numbers();
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 3), ElementsAre(0, 0, 0));
  EXPECT_EQ(values[3],
            numbered(every_layer().tensor(every_layer().find_tensor("first.weight")))[0]);
}

TEST_F(OnnxTest, ConstantsBesideTheImagesAreLayersThatAreNotTrained) {
  Model model = exported();
  model.nodes.insert(model.nodes.begin(), {{"Sub", "mean", {"images", "middle"}, {"centred"}},
                                           {"Mul", "spread", {"centred", "factor"}, {"scaled"}}});
  model.initializers.push_back(TensorData::of("middle", {}, std::vector<float>{4}));
  model.initializers.push_back(TensorData::of("factor", {3, 1, 1}, std::vector<float>{1, 2, 3}));
  model.nodes[2].inputs[0] = "scaled";
  graph::Builder net;
  const ImportedNetwork network =
      import_model(model, {.batch = 2, .classes = 0, .image = 0, .channels = 0}, net);
  const auto values = [&](const std::string& name) {
    for (const ImportedWeight& weight : network.weights) {
      if (weight.name == name) return weight.data.numbers();
    }
    return std::vector<float>();
  };
  EXPECT_THAT(values("mean.weight"), ElementsAre(1, 2, 3));
  EXPECT_THAT(values("mean.bias"), ElementsAre(-4, -8, -12));
  net.classify(network.output);
  const graph::Graph graph = net.take();
  EXPECT_EQ(graph.tensor(graph.find_tensor("mean.weight")).role, graph::Role::buffer);
  EXPECT_EQ(graph.tensor(graph.find_tensor("first.weight")).role, graph::Role::parameter);
}

TEST_F(OnnxTest, OtherClassesReplaceTheLastLayer) {
  write_model(exported(), directory_ / "net.onnx");
  const std::string name = kOnnxPrefix + (directory_ / "net.onnx").string();
  ModelOptions options = default_options(name);
  EXPECT_EQ(options.classes, kClasses);
  options.batch = 2;
  options.classes = 7;
  const graph::Graph graph = build_model(name, options);
  EXPECT_THAT(graph.tensor(graph.find_tensor("last.weight")).type.shape, ElementsAre(7, 18 * 9));
}

TEST_F(OnnxTest, LayersAreCalledAfterWeightsOrPathsOfNodes) {
  Model model = exported();
  const auto rename = [&](const std::string& from, const std::string& to) {
    for (TensorData& tensor : model.initializers) {
      if (tensor.name == from) tensor.name = to;
    }
    for (Node& node : model.nodes) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  };
  rename("second.weight", "onnx::Conv_12");
  for (Node& node : model.nodes) {
    if (node.name == "second") node.name = "/layer1/layer1.0/conv2/Conv";
  }
  write_model(model, directory_ / "net.onnx");
  const ModelFile file(directory_ / "net.onnx");
  graph::Builder net;
  std::vector<std::string> names;
  for (const ImportedWeight& weight :
       import_model(file.model(), {.batch = 2, .classes = 0, .image = 0, .channels = 0}, net)
           .weights) {
    names.push_back(weight.name);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"first.weight", "layer1.0.conv2.weight",
                                            "layer1.0.conv2.bias", "last.weight"}));
}

// A truncated file at every length, and one with each byte changed.
TEST_F(OnnxTest, AnyBytesAreRefusedWithASentence) {
  const graph::Graph graph = [] {
    graph::Builder net;
    const graph::Value x = net.global_average_pool(net.image(2, 3, 4, 4));
    net.classify(net.linear(net.flatten(x), "fc", {.features = 2}));
    return net.take();
  }();
  write_model(export_graph(graph, numbered, {.result = "logits"}), directory_ / "net.onnx");
  const std::string whole = read_text(directory_ / "net.onnx");
  int refused = 0;
  const auto look = [&](const std::string& text) {
    try {
      graph::Builder net;
      const Model model =
          parse_model(std::as_bytes(std::span(text)), "net.onnx",
                      [](const std::string&) { return std::span<const std::byte>(); });
      import_model(model, {.batch = 2, .classes = 0, .image = 0, .channels = 0}, net);
    } catch (const InputError& error) {
      ++refused;
    }
  };
  for (size_t length = 0; length < whole.size(); ++length) look(whole.substr(0, length));
  EXPECT_GT(refused, static_cast<int>(whole.size() * 9 / 10));
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int bit : {1, 2, 8, 64}) {
      std::string text = whole;
      text[i] = static_cast<char>(text[i] ^ bit);
      look(text);
    }
  }
}

// A model of one node and one tensor, whose four bytes lie in another file.
void write_external(const std::filesystem::path& path, const std::string& location,
                    const std::string& offset) {
  const auto entry = [](const char* key, const std::string& value) {
    WireWriter message;
    message.text(1, key);
    message.text(2, value);
    return message;
  };
  WireWriter tensor, node, graph, model;
  tensor.integer(1, 1);
  tensor.integer(2, 1);
  tensor.text(8, "w");
  tensor.message(13, entry("location", location));
  tensor.message(13, entry("offset", offset));
  tensor.integer(14, 1);
  node.text(4, "Relu");
  graph.message(1, std::move(node));
  graph.message(5, std::move(tensor));
  model.integer(1, 8);
  model.message(7, std::move(graph));
  OutputFile file(path);
  model.write(file);
  file.commit();
}

TEST_F(OnnxTest, DataOfTensorsLiesBesideTheModelAndNowhereElse) {
  const auto path = directory_ / "inner" / "net.onnx";
  std::filesystem::create_directories(path.parent_path());
  const std::vector<float> numbers = {1, 2, 3};
  const auto bytes = std::as_bytes(std::span(numbers));
  for (const auto& folder : {directory_, path.parent_path()}) {
    write_text(folder / "w.data", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  write_external(path, "w.data", "8");
  EXPECT_THAT(ModelFile(path).model().initializers.at(0).numbers(), ElementsAre(3.0f));
  const auto refusal = [&](const std::string& location, const std::string& offset) {
    write_external(path, location, offset);
    try {
      ModelFile file(path);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal("../w.data", "0"), HasSubstr("no file beside the model"));
  EXPECT_THAT(refusal((directory_ / "w.data").string(), "0"), HasSubstr("no file beside"));
  EXPECT_THAT(refusal("w.data", "9"), HasSubstr("lies behind the end of 'w.data'"));
  EXPECT_THAT(refusal("w.data", "18446744073709551615"), HasSubstr("behind the end"));
  EXPECT_THAT(refusal("w.data", "eight"), HasSubstr("which is no number"));
  EXPECT_THAT(refusal("lost.data", "0"), HasSubstr("Cannot open"));
}

}  // namespace
}  // namespace millrace::models::onnx
