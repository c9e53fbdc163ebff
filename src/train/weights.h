// Model state in and out of files, under torchvision's or InsightFace's names.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "train/job.h"
#include "train/job_state.h"
#include "train/observer.h"
#include "train/weight_matching.h"

namespace millrace::train {

// One tensor of a model's state on the host, f32 in plain row-major order.
struct StateTensor {
  std::string name;
  graph::Role role = graph::Role::parameter;
  graph::Shape shape;
  std::vector<float> values;
};

using StateSnapshot = std::vector<StateTensor>;

// Copies the state but for what is in_rows; memory that `snapshot` has from an earlier call is used
// again. Called by all processes; the first one has the values.
void take_snapshot(const JobState& state, StateSnapshot& snapshot);

// Whether a role belongs to the weights (parameters and buffers) rather than to the optimizer.
bool is_weight(graph::Role role);

// A tensor as a file has it: class centres as they are stored, everything else in f32.
data::SafetensorsTensor describe_tensor(const JobTensor& tensor);

// Writes the tensors that `wanted` accepts; `path` appears complete or not at all.
data::SafetensorsWriter::Written write_tensors(const std::filesystem::path& path,
                                               const StateSnapshot& snapshot,
                                               bool (*wanted)(graph::Role),
                                               const std::map<std::string, std::string>& metadata);

// Matches (match_weights), then writes into the job; nothing is changed if that fails. What is not
// loaded keeps its values. Called by all processes; the first one reads the file, and has the
// names of what was matched.
WeightMatch load_tensors(JobState& state, const std::filesystem::path& path,
                         const std::function<bool(const JobTensor&)>& wanted,
                         HeadRule head = HeadRule::needed, const NewLayers* new_layers = nullptr,
                         const std::vector<std::string>& classes = {});

// The averaged weights of a checkpoint where it has them (--ema), else those that it trains.
std::filesystem::path weights_in(const std::filesystem::path& checkpoint);

// What a job that begins loads: its load_weights, or the ONNX file that is its model; empty if it
// starts anew.
std::filesystem::path starting_weights(const TrainJob& job);

// The file of weights that a job names: that of its newest intact checkpoint where it has a
// directory of them and no load_weights, else its starting_weights.
std::filesystem::path weights_file(const TrainJob& job, TrainingObserver& observer);

// Parameters and buffers; the head is optional. Saving settles the state first.
WeightMatch load_weights(JobState& state, const std::filesystem::path& path,
                         const NewLayers* new_layers = nullptr,
                         const std::vector<std::string>& classes = {});
void save_weights(const JobState& state, const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata);

}  // namespace millrace::train
