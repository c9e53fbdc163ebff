// A margin head as a classifier of the identities that it was trained on.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "graph/types.h"
#include "train/job_state.h"

namespace millrace::train {

// The trained class centres of a file of weights or of the shards of a checkpoint, which it keeps
// open.
struct TrainedCentres {
  int64_t classes = 0;
  int64_t features = 0;
  double scale = 64;  // that of the training where the file tells, or the usual one
  graph::DataType dtype = graph::DataType::f32;
  // Rows from `first` on, as they are stored.
  std::function<void(int64_t first, std::span<std::byte> bytes)> read = {};
};

// The centres that belong to a file of weights; none if it has none. Throws InputError for files
// that do not fit together.
std::optional<TrainedCentres> find_centres(const std::filesystem::path& weights);

// Throws InputError if a face network would be scored without any classifier from the file.
void require_classifier(const std::string& model, const std::filesystem::path& weights);

// Writes the centres, scaled to the length `scale`, into the classifier of a network that was built
// with ModelOptions::cosines: its logits are then what the head computes without the margin.
void load_centres_as_classifier(const TrainedCentres& centres, JobState& state);

}  // namespace millrace::train
