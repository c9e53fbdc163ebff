// Parts that several networks are made of, and the networks themselves for the list in
// models.cpp. Each network function describes layers only; options are already checked. Face
// networks return their embedding, classifiers have ended themselves.
#pragma once

#include <string>

#include "graph/builder.h"
#include "models/models.h"

namespace millrace {

// Convolution "<convolution>", batch normalisation "<norm>".
Value convolution_norm(Builder& net, Value x, const std::string& convolution,
                       const std::string& norm, const ConvolutionOptions& options);

// Two 3x3 convolutions "<name>.conv1" and "<name>.conv2" with a short cut; the first strides.
Value basic_block(Builder& net, Value x, const std::string& name, int64_t channels, int64_t stride);

// 1x1, 3x3 and 1x1 convolutions with a short cut; the 3x3 strides; 4 * `width` channels leave.
Value bottleneck(Builder& net, Value x, const std::string& name, int64_t width, int64_t stride);

// Averages to height x width; nothing where the image already has that size.
Value average_to(Builder& net, Value x, int64_t height, int64_t width);

inline constexpr int64_t kEmbeddingFeatures = 512;

Value iresnet18(Builder& net, const ModelOptions& options);
Value iresnet34(Builder& net, const ModelOptions& options);
Value iresnet50(Builder& net, const ModelOptions& options);
Value iresnet100(Builder& net, const ModelOptions& options);
Value iresnet200(Builder& net, const ModelOptions& options);
Value mobilefacenet(Builder& net, const ModelOptions& options);

void alexnet(Builder& net, const ModelOptions& options);
void fashion_cnn(Builder& net, const ModelOptions& options);
void resnet18(Builder& net, const ModelOptions& options);
void resnet34(Builder& net, const ModelOptions& options);
void resnet50(Builder& net, const ModelOptions& options);
void resnet101(Builder& net, const ModelOptions& options);
void resnet152(Builder& net, const ModelOptions& options);
void vgg16(Builder& net, const ModelOptions& options);
void vgg16_bn(Builder& net, const ModelOptions& options);

}  // namespace millrace
