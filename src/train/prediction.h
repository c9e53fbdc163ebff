// Labels and embeddings of image files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

// Told of each file that could be read, in order: its place in the list, and its numbers.
using EachFile = std::function<void(size_t file, std::span<const float> numbers)>;

// What was not read because it was damaged.
struct UnreadFiles {
  int64_t count = 0;
  std::vector<std::string> sentences = {};  // of the first of them
};

// The logits of every file by the network and weights of a job, with the recipe of its evaluations:
// the same numbers; of several `crops` (1, 5 or 10) the mean of their logits. A damaged file ends
// it, or is passed over if the job skips bad records. Throws InputError, and JobError if stopped.
UnreadFiles predict_files(const TrainJob& job, const std::vector<std::filesystem::path>& files,
                          TrainingObserver& observer, const EachFile& each, int crops = 1);

// Likewise the embeddings of a face network, of unit length, as evaluate_faces compares them.
UnreadFiles embed_files(const TrainJob& job, const std::vector<std::filesystem::path>& files,
                        TrainingObserver& observer, const EachFile& each);

// A class and how sure the network is of it.
struct ClassShare {
  int64_t label = 0;
  double share = 0;  // softmax over all classes
};

// The best `count` classes, best first; of equal ones the first.
std::vector<ClassShare> best_classes(std::span<const float> logits, int64_t count);

}  // namespace millrace::train
