// The classes of a job as its data sets tell them.
#pragma once

#include "train/job.h"

namespace millrace::train {

// Fills in how many classes the network has, unless `given`, and their names, from the training
// data; notes in the job if the data does not tell. Throws InputError if the data has more classes
// than were given.
void follow_training_data(TrainJob& job, bool given);

// Throws InputError if labels of the evaluation data cannot be those of the network: there are
// more, or they have names and neither the network's names nor their number say which is which.
// Unless `given`, a network without names takes its number of classes from the data.
void follow_evaluation_data(TrainJob& job, bool given);

}  // namespace millrace::train
