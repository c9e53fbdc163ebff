// Helpers of the tests of small jobs on several devices.
#pragma once

#include <memory>
#include <string>

#include "base/random.h"
#include "memory_feed.h"
#include "train/job.h"

namespace millrace::train {

// A few steps with the same arithmetic on every machine.
inline TrainJob placed_job(const std::string& placement, int64_t micro_batches, int64_t steps) {
  TrainJob job;
  job.steps = steps;
  job.learning_rate.base = 0.05;
  job.convolution = kernels::ConvolutionAlgorithm::direct;
  job.threads = 1;
  job.oversubscribe = true;
  job.plan.stages = parallel::parse_stages(placement);
  job.plan.micro_batches = micro_batches;
  return job;
}

// Random images whose labels go round.
inline std::shared_ptr<MemoryData> random_images(const BatchShape& shape, int count) {
  auto data = std::make_shared<MemoryData>();
  const Random random(5, 1);
  for (int i = 0; i < count; ++i) data->labels.push_back(static_cast<int32_t>(i % shape.classes));
  const auto values = static_cast<uint64_t>(count * shape.channels * shape.height * shape.width);
  for (uint64_t i = 0; i < values; ++i) data->images.push_back(random.normal(i));
  return data;
}

}  // namespace millrace::train
