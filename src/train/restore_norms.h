// Batch normalisations that an exporter folded into convolutions, put back.
#pragma once

#include <cstdint>
#include <filesystem>

#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

// Writes the network of the ONNX file `source` to `target` with a batch normalisation behind each
// convolution that has a bias and none behind it: its statistics are those of what the convolution
// gives for so many pictures of the job's data (its options say the size of images; its threads
// and limit of memory hold), its scale and bias such that the network gives what it gave. Returns
// how many there are. Throws InputError if there are none to restore.
int64_t restore_norms(const TrainJob& job, const std::filesystem::path& source,
                      const std::filesystem::path& target, int64_t pictures,
                      TrainingObserver& observer);

}  // namespace millrace::train
