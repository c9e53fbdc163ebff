// The flags of the loss scale.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "train/job.h"

namespace millrace::cli {

// What the user typed.
struct ScaleFlags {
  std::string scale;  // empty: by the precision
  int64_t window = 2000;
  double least = 1;
  double most = 16777216;
  std::vector<std::string> inject;
};

void add_scale_flags(CLI::App& command, ScaleFlags& flags);

// Understand the flags. Throw InputError naming the flag at fault. Without --loss-scale it is
// dynamic if `needs_scale`, else 1.
train::LossScaleSettings to_loss_scale(const ScaleFlags& flags, bool needs_scale);
std::vector<train::InjectedOverflow> to_faults(const ScaleFlags& flags);

}  // namespace millrace::cli
