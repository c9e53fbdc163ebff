#include "models/models.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/text.h"
#include "models/blocks.h"
#include "models/onnx/importer.h"

namespace millrace::models {
namespace {

// One of `classify` and `embed` is set.
struct Model {
  std::string_view name;
  void (*classify)(graph::Builder& net, const ModelOptions& options) = nullptr;
  ModelOptions usual = {};
  graph::Value (*embed)(graph::Builder& net, const ModelOptions& options) = nullptr;
};

constexpr Model face_model(std::string_view name,
                           graph::Value (*embed)(graph::Builder& net,
                                                 const ModelOptions& options)) {
  return {.name = name, .usual = {.image = 112}, .embed = embed};
}

constexpr Model kModels[] = {
    {"alexnet", alexnet},
    {"vgg16", vgg16},
    {"vgg16_bn", vgg16_bn},
    {"resnet18", resnet18},
    {"resnet34", resnet34},
    {"resnet50", resnet50},
    {"resnet101", resnet101},
    {"resnet152", resnet152},
    {"resnext50_32x4d", resnext50_32x4d},
    {"wide_resnet50_2", wide_resnet50_2},
    {"densenet121", densenet121},
    {"squeezenet1_1", squeezenet1_1},
    {"mobilenet_v2", mobilenet_v2},
    {"mobilenet_v3_large", mobilenet_v3_large},
    {"efficientnet_b0", efficientnet_b0},
    {"fashion_cnn", fashion_cnn, {.classes = 10, .image = 28, .channels = 1}},
    face_model("iresnet18", iresnet18),
    face_model("iresnet34", iresnet34),
    face_model("iresnet50", iresnet50),
    face_model("iresnet100", iresnet100),
    face_model("iresnet200", iresnet200),
    face_model("mobilefacenet", mobilefacenet),
};

// Every network here takes images of this size.
constexpr int64_t kAmpleImage = 512;

const Model& find_model(std::string_view name) {
  for (const Model& model : kModels) {
    if (model.name == name) return model;
  }
  const std::vector<std::string> names = model_names();
  const std::string guess = nearest(name, names);
  fail_input("There is no model '{}'{}; the models are {}.", name,
             guess.empty() ? "" : fmt::format(", did you mean '{}'?", guess),
             fmt::join(names, ", "));
}

std::vector<std::string> face_model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) {
    if (model.embed != nullptr) names.emplace_back(model.name);
  }
  return names;
}

void expect_between(std::string_view what, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) {
    fail_input("The {} must be from {} to {}, not {}.", what, least, most, value);
  }
}

void check(const ModelOptions& options) {
  expect_between("batch size", options.batch, 1, int64_t{1} << 20);
  expect_between("number of classes", options.classes, 1, int64_t{1} << 30);
  expect_between("image size", options.image, 1, int64_t{1} << 14);
  expect_between("number of image channels", options.channels, 1, 4096);
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    fail_input("The label smoothing must be from 0 to 1, not {}.", options.label_smoothing);
  }
}

// Ends a network that makes embeddings as the options ask.
void end_embedding(graph::Builder& net, graph::Value embedding, const ModelOptions& options) {
  if (options.classifier && options.head) {
    graph::MarginHeadOptions head = *options.head;
    head.classes = options.classes;
    net.margin_head(embedding, head);
  } else if (options.classifier && options.cosines) {
    net.classify(net.linear(net.l2_normalize(embedding), "head",
                            {.features = options.classes, .bias = false}));
  } else if (options.classifier) {
    net.classify(net.linear(embedding, "head", {.features = options.classes}),
                 {.label_smoothing = options.label_smoothing});
  }
  net.result(embedding, "embedding");
}

graph::Graph build(const Model& model, const ModelOptions& options) {
  graph::Builder net;
  if (model.embed == nullptr) {
    model.classify(net, options);
  } else {
    end_embedding(net, model.embed(net, options), options);
  }
  return net.take();
}

graph::Graph build_onnx(const std::filesystem::path& path, const ModelOptions& options) {
  const onnx::ModelFile file(path);
  const bool embeds = onnx::gives_embedding(file.model()) || options.head || !options.classifier;
  ModelOptions inner = options;
  if (embeds) inner.classes = 0;
  graph::Builder net;
  try {
    const graph::Value output = onnx::import_model(file.model(), inner, net).output;
    if (embeds) {
      end_embedding(net, output, options);
    } else if (net.shape(output)[1] != options.classes) {
      fail_input("it tells {} classes apart and has no linear layer at its end to replace",
                 net.shape(output)[1]);
    } else {
      net.classify(output, {.label_smoothing = options.label_smoothing});
    }
  } catch (const InputError& error) {
    fail_input("'{}' cannot be used as a network: {}.", path.string(), error.marked());
  }
  return net.take();
}

ModelOptions onnx_options(const std::filesystem::path& path) {
  const onnx::ModelFile file(path);
  graph::Builder net;
  try {
    const onnx::ImportedNetwork network = onnx::import_model(
        file.model(), {.batch = 2, .classes = 0, .image = 0, .channels = 0}, net);
    ModelOptions usual;
    if (!onnx::gives_embedding(file.model())) usual.classes = network.features;
    if (network.image > 0) usual.image = network.image;
    if (network.channels > 0) usual.channels = network.channels;
    return usual;
  } catch (const InputError& error) {
    fail_input("'{}' cannot be used as a network: {}.", path.string(), error.marked());
  }
}

bool works(const Model& model, ModelOptions options, int64_t image) {
  options.image = image;
  try {
    build(model, options);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

}  // namespace

std::filesystem::path onnx_file(std::string_view name) {
  return name.starts_with(kOnnxPrefix) ? std::filesystem::path(name.substr(kOnnxPrefix.size()))
                                       : std::filesystem::path();
}

graph::Graph build_model(std::string_view name, const ModelOptions& options) {
  if (const auto file = onnx_file(name); !file.empty()) {
    check(options);
    return build_onnx(file, options);
  }
  const Model& model = find_model(name);
  check(options);
  if (model.embed == nullptr && (options.head || !options.classifier)) {
    fail_input("Model '{}' gives no embeddings; the face models are {}.", name,
               fmt::join(face_model_names(), ", "));
  }
  try {
    return build(model, options);
  } catch (const InputError& error) {
    if (options.image >= kAmpleImage || !works(model, options, kAmpleImage)) {
      fail_input("Model '{}' cannot be built: {}.", name, error.marked());
    }
    const int64_t least = smallest_image(name, options);
    fail_input(
        "Model '{}' cannot take images of {}x{} in batches of {}: {}; it works from {}x{} "
        "upwards.",
        name, options.image, options.image, options.batch, error.marked(), least, least);
  }
}

int64_t smallest_image(std::string_view name, const ModelOptions& options) {
  const Model& model = find_model(name);
  int64_t too_small = 0, enough = kAmpleImage;
  while (enough - too_small > 1) {
    const int64_t middle = (too_small + enough) / 2;
    (works(model, options, middle) ? enough : too_small) = middle;
  }
  return enough;
}

ModelOptions default_options(std::string_view name) {
  const auto file = onnx_file(name);
  return file.empty() ? find_model(name).usual : onnx_options(file);
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Model& model : kModels) names.emplace_back(model.name);
  return names;
}

bool is_face_model(std::string_view name) {
  if (const auto file = onnx_file(name); !file.empty()) {
    return onnx::gives_embedding(onnx::ModelFile(file).model());
  }
  return std::any_of(std::begin(kModels), std::end(kModels), [&](const Model& model) {
    return model.name == name && model.embed != nullptr;
  });
}

}  // namespace millrace::models
