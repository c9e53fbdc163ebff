// Networks by name: graphs of the forward pass up to loss and accuracy, nothing else.
//
// Parameter names, shapes and starting values are torchvision's, and InsightFace's for the face
// networks (iresnet…, mobilefacenet), so that their checkpoints fit. A face network has the result
// "embedding" (batch × 512); its classifier is the layer "head". "onnx:FILE" is the network in an
// ONNX file, whose layers are named after its weights or nodes; one that ends in an embedding is a
// face network too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/margin_head.h"

namespace millrace::models {

struct ModelOptions {
  int64_t batch = 1;
  int64_t classes = 1000;
  int64_t image = 224;  // height and width
  int64_t channels = 3;
  bool dropout = true;     // false leaves dropout layers out
  bool classifier = true;  // false ends a face network at its embedding; others need it
  double label_smoothing = 0;
  // Ends a face network with a margin head instead of a linear classifier; its number of classes
  // is `classes`.
  std::optional<graph::MarginHeadOptions> head = {};
  // Ends a face network with "head.weight" times its embedding scaled to unit length: how a margin
  // head is evaluated.
  bool cosines = false;
};

// Throws InputError for an unknown name (with a suggestion), options out of range, or an image
// too small for the network (with the layer at fault and the smallest image that works).
graph::Graph build_model(std::string_view name, const ModelOptions& options);

// The least height and width that the network takes, whatever `options.image` is. Throws InputError
// for an unknown name.
int64_t smallest_image(std::string_view name, const ModelOptions& options);

// The options a model is usually trained with: 28x28 grey images of ten classes for
// fashion_cnn, 112x112 for face networks, ImageNet's for the others. Throws InputError for an
// unknown name.
ModelOptions default_options(std::string_view name);

// Those that are built in.
std::vector<std::string> model_names();

inline const std::string kOnnxPrefix = "onnx:";

// FILE of "onnx:FILE"; empty for other names.
std::filesystem::path onnx_file(std::string_view name);

// Whether there is such a model and it gives embeddings.
bool is_face_model(std::string_view name);

}  // namespace millrace::models
