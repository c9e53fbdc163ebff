// Which tensors of a weights file a model takes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/weights/weights_file.h"
#include "train/job_state.h"
#include "train/new_layers.h"

namespace millrace::train {

// Whether the classifier of a face network (tensors "head.…") may be missing from the file, and
// may be in it without being in the model.
enum class HeadRule : uint8_t { needed, optional };

// What a file gives to a model: for each of its tensors whether it is loaded, and names.
struct WeightMatch {
  std::vector<bool> loaded;
  std::vector<std::string> anew;      // tensors of the model that are not, but for an optional head
  std::vector<std::string> unplaced;  // tensors of the file that the model lacks
  std::vector<std::string> other_classes;  // the file's names of classes, where they are others
};

// Compares names and shapes; every number type is taken, and torchvision's `num_batches_tracked`
// counters are passed over. Without new layers the file must hold exactly these tensors; with
// them, half. Where layers may be new (a job that begins), `new_layers` says which, each
// pattern of it one at least; automatically the classifier too, if the file
// names other classes than `classes` (empty: not known). Throws InputError with one sentence that
// names the first tensor at fault and how many there are.
WeightMatch match_weights(const data::WeightsFile& file, const std::vector<JobTensor>& tensors,
                          HeadRule head = HeadRule::needed, const NewLayers* new_layers = nullptr,
                          const std::vector<std::string>& classes = {});

// "318 of 320 tensors loaded; fc.weight, fc.bias start anew." Where classes differ, which the file
// has.
std::string describe(const WeightMatch& match);

}  // namespace millrace::train
