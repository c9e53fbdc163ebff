#include "train/weights.h"

#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "kernels/head/storage.h"
#include "train/centre_shards.h"
#include "train/checkpoint.h"

namespace millrace::train {
namespace {

std::string_view name_in_file(graph::DataType type) {
  switch (type) {
    case graph::DataType::f32:
      return "F32";
    case graph::DataType::f16:
      return "F16";
    case graph::DataType::bf16:
      return "BF16";
    case graph::DataType::s32:
      return "I32";  // counts of updates
    default:
      throw std::logic_error("parameters are f32, f16 or bf16");
  }
}

// Rows of a file's tensor in the type in which the job stores them.
void convert_rows(const data::WeightTensor& from, int64_t first, int64_t count,
                  const JobTensor& tensor, std::span<std::byte> to) {
  const int64_t row = tensor.row_bytes();
  if (data::name_of(from.type) == name_in_file(tensor.stored) && from.contiguous()) {
    std::memcpy(to.data(), from.data.data() + first * row, to.size());
    return;
  }
  const int64_t columns = row / graph::size_of(tensor.stored);
  std::vector<float> values(static_cast<size_t>(columns));
  for (int64_t i = 0; i < count; ++i) {
    data::read_rows(from, first + i, 1, values);
    kernels::store_row(tensor.stored, values.data(), columns,
                       kernels::rounding_key(0, -1, first + i, 0), to.data() + i * row);
  }
}

void load_rows(JobState& state, size_t place, const data::WeightTensor* stored) {
  const JobTensor& tensor = state.tensors()[place];
  const int64_t row = tensor.row_bytes();
  std::vector<std::byte> bytes;
  each_few_rows(0, tensor.shape.at(0), row, [&](int64_t first, int64_t count) {
    bytes.resize(static_cast<size_t>(count * row));
    if (stored != nullptr) {
      convert_rows(*stored, first, count, tensor, bytes);
      const int64_t row_in_file = stored->strides[0] * data::size_of(stored->type);
      const auto begin = static_cast<size_t>(first * row_in_file);
      forget_pages(stored->data.subspan(begin, static_cast<size_t>((count - 1) * row_in_file)));
    }
    state.write_rows(place, first, bytes);
  });
}

}  // namespace

data::SafetensorsTensor describe_tensor(const JobTensor& tensor) {
  const graph::DataType type = tensor.in_rows() ? tensor.stored : graph::DataType::f32;
  return {.name = tensor.name, .dtype = std::string(name_in_file(type)), .shape = tensor.shape};
}

bool is_weight(graph::Role role) {
  return role == graph::Role::parameter || role == graph::Role::buffer;
}

void take_snapshot(const JobState& state, StateSnapshot& snapshot) {
  const std::vector<JobTensor>& tensors = state.tensors();
  size_t taken = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].in_rows()) continue;
    if (taken == snapshot.size()) snapshot.emplace_back();
    StateTensor& tensor = snapshot[taken++];
    tensor.name = tensors[i].name;
    tensor.role = tensors[i].role;
    tensor.shape = tensors[i].shape;
    state.read(i, tensor.values);
  }
}

data::SafetensorsWriter::Written write_tensors(const std::filesystem::path& path,
                                               const StateSnapshot& snapshot,
                                               bool (*wanted)(graph::Role),
                                               const std::map<std::string, std::string>& metadata) {
  std::vector<data::SafetensorsTensor> tensors;
  for (const StateTensor& tensor : snapshot) {
    if (!wanted(tensor.role)) continue;
    tensors.push_back({.name = tensor.name, .dtype = "F32", .shape = tensor.shape});
    tensors.back().data = tensor.values.data();
    tensors.back().size = tensor.values.size() * sizeof(float);
  }
  return data::write_safetensors(path, tensors, metadata);
}

WeightMatch load_tensors(JobState& state, const std::filesystem::path& path,
                         const std::function<bool(const JobTensor&)>& wanted, HeadRule head,
                         const NewLayers* new_layers, const std::vector<std::string>& classes) {
  std::vector<size_t> places;
  std::vector<JobTensor> tensors;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    if (!wanted(state.tensors()[i])) continue;
    places.push_back(i);
    tensors.push_back(state.tensors()[i]);
  }
  std::optional<data::WeightsFile> file;
  WeightMatch match;
  std::string loaded;
  if (state.holds_values()) {
    file.emplace(path, true);
    match = match_weights(*file, tensors, head, new_layers, classes);
    for (const bool is_loaded : match.loaded) loaded += is_loaded ? 'y' : 'n';
  }
  loaded = state.agree(loaded);
  std::vector<float> values;
  for (size_t i = 0; i < places.size(); ++i) {
    if (loaded.at(i) == 'n') continue;
    const data::WeightTensor* stored = file ? file->find(tensors[i].name) : nullptr;
    if (tensors[i].in_rows()) {
      load_rows(state, places[i], stored);
      continue;
    }
    if (stored != nullptr) {
      values.resize(static_cast<size_t>(stored->elements()));
      data::read_values(*stored, values);
    }
    state.write(places[i], values);
  }
  return match;
}

std::filesystem::path starting_weights(const TrainJob& job) {
  return job.load_weights.empty() ? models::onnx_file(job.model) : job.load_weights;
}

std::filesystem::path weights_in(const std::filesystem::path& checkpoint) {
  const std::filesystem::path average = checkpoint / kAverageFile;
  return std::filesystem::exists(average) ? average : checkpoint / kWeightsFile;
}

std::filesystem::path weights_file(const TrainJob& job, TrainingObserver& observer) {
  if (!job.load_weights.empty() || job.checkpoint.empty()) return starting_weights(job);
  const auto warn = [&](std::string_view sentence) {
    observer.on_message(Severity::warning, sentence);
  };
  if (job.best) {
    const auto best = find_best(job.checkpoint, warn);
    if (!best) {
      fail_input(
          "‹best›: no intact checkpoint in '{}' was measured; train with ‹eval_data› or "
          "‹valid_share›.",
          job.checkpoint.string());
    }
    return weights_in(*best);
  }
  return weights_in(newest_checkpoint(job.checkpoint, warn));
}

WeightMatch load_weights(JobState& state, const std::filesystem::path& path,
                         const NewLayers* new_layers, const std::vector<std::string>& classes) {
  return load_tensors(
      state, path, [](const JobTensor& tensor) { return is_weight(tensor.role); },
      HeadRule::optional, new_layers, classes);
}

void save_weights(const JobState& state, const std::filesystem::path& path,
                  const std::map<std::string, std::string>& metadata) {
  state.settle();
  std::vector<data::SafetensorsTensor> tensors;
  std::vector<size_t> places;
  for (const bool in_rows : {false, true}) {  // 16 bits behind 32, so that all are aligned
    for (size_t i = 0; i < state.tensors().size(); ++i) {
      const JobTensor& tensor = state.tensors()[i];
      if (!is_weight(tensor.role) || tensor.in_rows() != in_rows) continue;
      tensors.push_back(describe_tensor(tensor));
      places.push_back(i);
    }
  }
  std::optional<data::SafetensorsWriter> writer;
  if (state.holds_values()) writer.emplace(path, tensors, metadata);
  std::vector<float> values;
  std::vector<std::byte> bytes;
  for (const size_t place : places) {
    const JobTensor& tensor = state.tensors()[place];
    if (!tensor.in_rows()) {
      state.read(place, values);
      if (writer) writer->append(values.data(), values.size() * sizeof(float));
      continue;
    }
    each_few_rows(0, tensor.shape.at(0), tensor.row_bytes(), [&](int64_t first, int64_t count) {
      bytes.resize(static_cast<size_t>(count * tensor.row_bytes()));
      state.read_rows(place, first, bytes);
      if (writer) writer->append(bytes.data(), bytes.size());
    });
  }
  if (writer) writer->commit();
}

}  // namespace millrace::train
