// A job that trains in milliseconds.
#pragma once

#include <string>

#include "parallel/placement.h"
#include "train/job.h"

namespace millrace::profile {

inline train::TrainJob small_job(const std::string& placement, int64_t micro_batches = 1) {
  train::TrainJob job;
  job.model = "fashion_cnn";
  job.options = models::default_options(job.model);
  job.options.batch = 8;
  job.steps = 3;
  job.threads = 1;
  job.oversubscribe = true;
  job.learning_rate.base = 0.01;
  job.convolution = kernels::ConvolutionAlgorithm::direct;
  job.plan.stages = parallel::parse_stages(placement);
  job.plan.micro_batches = micro_batches;
  return job;
}

}  // namespace millrace::profile
