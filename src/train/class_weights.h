// How much each class counts in the loss.
#pragma once

#include <string>
#include <vector>

#include "train/job.h"

namespace millrace::train {

// What --class-weights says. `balanced`: samples / (classes * samples of the class), so that their
// mean over the samples is 1; a class without samples gets 0. Else a file with a number a line, in
// the order of the labels, or with "NAME NUMBER" lines where the data has names. Throws InputError.
std::vector<double> class_weights_of(const TrainJob& job, const std::string& specification);

}  // namespace millrace::train
