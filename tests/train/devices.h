// Jobs of one small network on any devices, compared with one device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "data/safetensors.h"
#include "graph/builder.h"
#include "placed_job.h"
#include "support.h"
#include "train/trainer.h"

namespace millrace::train {

inline constexpr BatchShape kShape = {
    .batch = 12, .channels = 3, .height = 16, .width = 16, .classes = 10};

// Convolutions, dropout and linear layers, without batch norm.
inline graph::Graph network() {
  graph::Builder net;
  graph::Value x = net.image(kShape.batch, kShape.channels, kShape.height, kShape.width);
  x = net.relu(net.convolution(x, "conv1", {.channels = 16, .kernel = 3, .padding = 1}));
  x = net.max_pool(x, {});
  x = net.relu(net.convolution(x, "conv2", {.channels = 24, .kernel = 3, .padding = 1}));
  x = net.dropout(net.flatten(net.max_pool(x, {})), 0.5);
  x = net.relu(net.linear(x, "fc1", {.features = 40}));
  net.classify(net.linear(x, "fc2", {.features = kShape.classes}));
  return net.take();
}

class DevicesTest : public DirectoryTest {
 protected:
  DevicesTest() {
    work_.network = network();
    work_.training = [this](FeedPosition start) {
      return make_memory_feed(data_, kShape, 1, start);
    };
    work_.evaluation = [this] { return make_memory_evaluation_feed(data_, kShape); };
  }

  static TrainJob job(const std::string& placement, int64_t micro_batches = 1) {
    return placed_job(placement, micro_batches, 6);
  }

  struct Outcome {
    TrainResult result;
    std::filesystem::path weights;
  };

  Outcome run(TrainJob job, const std::string& name) {
    job.save_weights = directory_ / name;
    Outcome outcome = {run_training(job, work_, recorder_), job.save_weights};
    return outcome;
  }

  // The largest difference of a tensor, relative to its largest value.
  static double distance(const std::filesystem::path& a, const std::filesystem::path& b) {
    const data::SafetensorsFile first(a);
    const data::SafetensorsFile second(b);
    double worst = 0;
    for (const data::SafetensorsEntry& entry : first.entries()) {
      const auto* x = reinterpret_cast<const float*>(entry.data.data());
      const auto* y = reinterpret_cast<const float*>(second.at(entry.name).data.data());
      double largest = 1e-6;
      double difference = 0;
      for (size_t i = 0; i < entry.data.size() / sizeof(float); ++i) {
        largest = std::max(largest, std::abs(double{x[i]}));
        difference = std::max(difference, std::abs(double{x[i]} - double{y[i]}));
      }
      worst = std::max(worst, difference / largest);
    }
    return worst;
  }

  void expect_same(const Outcome& many, const Outcome& one) {
    ASSERT_EQ(many.result.losses.size(), one.result.losses.size());
    for (size_t i = 0; i < one.result.losses.size(); ++i) {
      EXPECT_NEAR(many.result.losses[i], one.result.losses[i], 1e-5 * one.result.losses[i]);
    }
    EXPECT_LT(distance(one.weights, many.weights), 1e-5);
    ASSERT_TRUE(many.result.evaluation && one.result.evaluation);
    EXPECT_EQ(many.result.evaluation->samples, 50);
    EXPECT_NEAR(many.result.evaluation->figure("loss").value,
                one.result.evaluation->figure("loss").value, 1e-4);
    EXPECT_EQ(many.result.evaluation->figure("top1").value,
              one.result.evaluation->figure("top1").value);
  }

  Recorder recorder_;
  std::shared_ptr<const MemoryData> data_ = random_images(kShape, 50);
  Workload work_;
};

}  // namespace millrace::train
