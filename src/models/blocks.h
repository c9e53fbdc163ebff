// Parts that several networks are made of, and the networks themselves for the list in
// models.cpp. Each network function describes layers only; options are already checked. Face
// networks return their embedding, classifiers have ended themselves.
#pragma once

#include <string>

#include "graph/builder.h"
#include "models/models.h"

namespace millrace::models {

// Convolution "<convolution>", batch normalisation "<norm>".
graph::Value convolution_norm(graph::Builder& net, graph::Value x, const std::string& convolution,
                              const std::string& norm, const graph::ConvolutionOptions& options,
                              const graph::BatchNormOptions& norm_options = {});

// One of the Builder's activations.
using Activation = graph::Value (graph::Builder::*)(graph::Value);

// Convolution "<name>.0", batch normalisation "<name>.1", an activation; images keep their size but
// for the stride.
graph::Value active_convolution(graph::Builder& net, graph::Value x, const std::string& name,
                                graph::ConvolutionOptions options, Activation activation,
                                const graph::BatchNormOptions& norm_options = {});

// Each channel times a number from 0 to 1 that the averages of all channels decide, by the 1x1
// convolutions "<name>.fc1" (to `squeezed` channels) and "<name>.fc2".
graph::Value squeeze_excitation(graph::Builder& net, graph::Value x, const std::string& name,
                                int64_t squeezed, Activation inner, Activation gate);

// Two 3x3 convolutions "<name>.conv1" and "<name>.conv2" with a short cut; the first strides.
graph::Value basic_block(graph::Builder& net, graph::Value x, const std::string& name,
                         int64_t channels, int64_t stride);

// 1x1, 3x3 and 1x1 convolutions with a short cut; the 3x3 strides and may have groups.
struct Bottleneck {
  int64_t inner = 0;     // channels between the convolutions
  int64_t channels = 0;  // that leave
  int64_t stride = 1;
  int64_t groups = 1;
};
graph::Value bottleneck(graph::Builder& net, graph::Value x, const std::string& name,
                        const Bottleneck& options);

// Averages to height x width; nothing where the image already has that size.
graph::Value average_to(graph::Builder& net, graph::Value x, int64_t height, int64_t width);

inline constexpr int64_t kEmbeddingFeatures = 512;

graph::Value iresnet18(graph::Builder& net, const ModelOptions& options);
graph::Value iresnet34(graph::Builder& net, const ModelOptions& options);
graph::Value iresnet50(graph::Builder& net, const ModelOptions& options);
graph::Value iresnet100(graph::Builder& net, const ModelOptions& options);
graph::Value iresnet200(graph::Builder& net, const ModelOptions& options);
graph::Value mobilefacenet(graph::Builder& net, const ModelOptions& options);

void alexnet(graph::Builder& net, const ModelOptions& options);
void densenet121(graph::Builder& net, const ModelOptions& options);
void efficientnet_b0(graph::Builder& net, const ModelOptions& options);
void fashion_cnn(graph::Builder& net, const ModelOptions& options);
void mobilenet_v2(graph::Builder& net, const ModelOptions& options);
void mobilenet_v3_large(graph::Builder& net, const ModelOptions& options);
void resnet18(graph::Builder& net, const ModelOptions& options);
void resnet34(graph::Builder& net, const ModelOptions& options);
void resnet50(graph::Builder& net, const ModelOptions& options);
void resnet101(graph::Builder& net, const ModelOptions& options);
void resnet152(graph::Builder& net, const ModelOptions& options);
void resnext50_32x4d(graph::Builder& net, const ModelOptions& options);
void squeezenet1_1(graph::Builder& net, const ModelOptions& options);
void vgg16(graph::Builder& net, const ModelOptions& options);
void vgg16_bn(graph::Builder& net, const ModelOptions& options);
void wide_resnet50_2(graph::Builder& net, const ModelOptions& options);

}  // namespace millrace::models
