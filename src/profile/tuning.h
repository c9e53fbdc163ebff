// Measures the convolutions of jobs and keeps which method was the fastest.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "kernels/convolution_choices.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::profile {

// A convolution for which there is a choice, with the seconds of its methods.
struct TunedConvolution {
  Json problem;        // shapes, direction, threads and processor, as tools/fit-convolutions reads
  std::string before;  // the method that was in use
  std::string after;   // and from now on
  std::map<std::string, double> seconds;  // of each method
};

struct TuningProgress {
  size_t done = 0;  // of `count` convolutions
  size_t count = 0;
  double seconds_left = 0;
};

struct TuningRequest {
  std::vector<train::TrainJob> jobs;
  bool again = false;  // also what was measured before
  // Called before each measurement and at the end; what is done then is kept.
  std::function<void(const TuningProgress&)> progress = [](const TuningProgress&) {};
};

// Compiles the jobs to see which convolutions they have, and measures those on a device as the jobs
// use it. `choices` remembers each at once.
std::vector<TunedConvolution> tune(const TuningRequest& request,
                                   kernels::ConvolutionChoices& choices,
                                   train::TrainingObserver& observer);

Json to_json(const std::vector<TunedConvolution>& convolutions);

}  // namespace millrace::profile
