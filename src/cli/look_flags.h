// The flags of commands that look at pictures with trained weights.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "cli/job_flags.h"
#include "train/prediction.h"

namespace millrace::cli {

struct LookFlags {
  JobFlags job;
  std::string weights;  // a directory of checkpoints, one of them, or a file
};

// The first place names the weights; those of images come behind it.
void add_look_flags(CLI::App& command, LookFlags& flags);

// Throws InputError if no weights are named, or an image in their place.
void require_weights(const LookFlags& flags);

// The job for so many images. Throws InputError.
train::TrainJob look_job(const LookFlags& flags, size_t images);

// --crops of photographs that are classified.
void add_crops_flag(CLI::App& command, int& crops);

// On standard error.
void tell_unread(const train::UnreadFiles& unread);

}  // namespace millrace::cli
