// Flags that say what of a network is trained, and on which images.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "train/job.h"

namespace millrace::cli {

struct TuningFlags {
  std::string freeze, train_only, rate_scales;
  double layer_decay = 1;
  bool freeze_norms = false;
  int64_t freeze_epochs = 0;
  std::string class_weights, sampler = "shuffled";
  std::vector<float> jitter;
  std::vector<int> rand_augment;
  double erasing = 0;
  double mixup = 0, cutmix = 0;
};

void add_tuning_flags(CLI::App& command, TuningFlags& flags);

// All but the weights of classes, for which the job must know its data. Throws InputError naming
// the flag.
void apply_tuning(const TuningFlags& flags, train::TrainJob& job);

}  // namespace millrace::cli
