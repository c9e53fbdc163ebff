// A job that trains in milliseconds.
#pragma once

#include <string>

#include "parallel/placement.h"
#include "train/job.h"

namespace millrace {

inline TrainJob small_job(const std::string& placement, int64_t micro_batches = 1) {
  TrainJob job;
  job.model = "fashion_cnn";
  job.options = default_options(job.model);
  job.options.batch = 8;
  job.steps = 3;
  job.threads = 1;
  job.oversubscribe = true;
  job.learning_rate.base = 0.01;
  job.convolution = ConvolutionAlgorithm::direct;
  job.plan.stages = parse_stages(placement);
  job.plan.micro_batches = micro_batches;
  return job;
}

}  // namespace millrace
