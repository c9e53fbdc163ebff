// What a job works on.
#pragma once

#include "train/trainer.h"

namespace millrace::train {

// A network and where the batches of it come from, of each only the rows given.
struct DataSource {
  std::function<std::unique_ptr<Feed>(FeedPosition, const std::vector<RowRange>&)> training;
  // Opens the data; each call of what it returns starts from the beginning. Empty: none.
  std::function<std::function<std::unique_ptr<Feed>()>(const std::vector<RowRange>&)> evaluation;
};

// The data that a job names; borrows the job.
DataSource data_of(const TrainJob& job);

// A caller's own; borrows both.
DataSource data_of(const TrainJob& job, const Workload& work);

// The job with batch, classes and image size of a caller's workload, ready for `check`. Throws
// InputError if the network lacks the inputs and results of a classifier.
TrainJob job_for(TrainJob job, const Workload& work);

}  // namespace millrace::train
