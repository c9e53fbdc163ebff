// What a job works on.
#pragma once

#include "train/trainer.h"

namespace millrace {

// The network and the data that a job names. Borrows the job. Throws InputError for a model or
// data set that cannot be had.
Workload workload_of(const TrainJob& job);

// The job with batch, classes and image size of a caller's workload, ready for `check`. Throws
// InputError if the network lacks the inputs and results of a classifier.
TrainJob job_for(TrainJob job, const Workload& work);

}  // namespace millrace
