// A part of a job.
#pragma once

#include "train/trainer.h"

namespace millrace::train {

// Runs a job that was checked, from its first step or its newest checkpoint, to the end of an epoch
// (0: of the job), which it leaves in a checkpoint.
TrainResult run_part(const TrainJob& job, TrainingObserver& observer, int64_t until_epoch);

}  // namespace millrace::train
