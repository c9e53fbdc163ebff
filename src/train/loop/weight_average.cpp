#include "train/loop/weight_average.h"

#include <utility>

#include "data/weights/weights_file.h"
#include "train/checkpoint.h"

namespace millrace::train {

WeightAverage::WeightAverage(JobState& state, double decay) : state_(state), decay_(decay) {
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    const JobTensor& tensor = state.tensors()[i];
    if (is_weight(tensor.role) && !tensor.in_rows()) places_.push_back(i);
  }
  for (const size_t place : places_) {
    const JobTensor& tensor = state.tensors()[place];
    values_.push_back({tensor.name, tensor.role, tensor.shape, {}});
  }
}

void WeightAverage::update() {
  const auto decay = static_cast<float>(decay_);
  const auto rest = static_cast<float>(1 - decay_);
  for (size_t i = 0; i < places_.size(); ++i) {
    std::vector<float>& average = values_[i].values;
    if (!any_) {
      state_.read(places_[i], average);
      continue;
    }
    state_.read(places_[i], scratch_);
    for (size_t k = 0; k < average.size(); ++k)
      average[k] = decay * average[k] + rest * scratch_[k];
  }
  any_ = true;
}

void WeightAverage::exchange() {
  if (!any_) return;
  for (size_t i = 0; i < places_.size(); ++i) {
    state_.read(places_[i], scratch_);
    state_.write(places_[i], values_[i].values);
    std::swap(values_[i].values, scratch_);
  }
}

void WeightAverage::resume(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kAverageFile;
  const bool there = state_.holds_values() && std::filesystem::exists(path);
  any_ = state_.agree(there ? "y" : "n") == "y";
  if (!there) return;
  const data::WeightsFile file(path, true);
  for (size_t i = 0; i < places_.size(); ++i) {
    const data::WeightTensor* stored = file.find(values_[i].name);
    if (stored == nullptr || stored->shape != values_[i].shape) {
      fail_input("'{}' has no tensor '{}' of this network.", path.string(), values_[i].name);
    }
    values_[i].values.resize(static_cast<size_t>(stored->elements()));
    data::read_values(*stored, values_[i].values);
  }
}

}  // namespace millrace::train
