#include "train/weights.h"

#include <cstring>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "kernels/head/storage.h"
#include "models/models.h"
#include "train/centre_shards.h"
#include "train/checkpoint.h"

namespace millrace {
namespace {

constexpr std::string_view kCounter = "num_batches_tracked";

constexpr std::pair<DataType, std::string_view> kTypes[] = {
    {DataType::f32, "F32"}, {DataType::f16, "F16"}, {DataType::bf16, "BF16"}};

std::string_view name_in_file(DataType type) {
  if (type == DataType::s32) return "I32";  // counts of updates
  for (const auto& [known, name] : kTypes) {
    if (known == type) return name;
  }
  throw std::logic_error("parameters are f32, f16 or bf16");
}

// The type of a tensor that is loaded; nothing if it cannot be.
std::optional<DataType> loadable_type(const JobTensor& tensor, std::string_view name) {
  for (const auto& [type, known] : kTypes) {
    if (known == name && (type == DataType::f32 || tensor.in_rows())) return type;
  }
  return std::nullopt;
}

// Rows of a file's tensor in the type in which the job stores them.
void convert_rows(std::span<const std::byte> from, DataType type, int64_t first_row,
                  const JobTensor& tensor, std::span<std::byte> to) {
  if (type == tensor.stored) {
    std::memcpy(to.data(), from.data(), from.size());
    return;
  }
  const int64_t columns = elements_of(tensor.shape) / tensor.shape.at(0);
  const auto rows = static_cast<int64_t>(to.size()) / tensor.row_bytes();
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<std::byte> aligned(static_cast<size_t>(columns * size_of(type)));
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(aligned.data(), from.data() + i * columns * size_of(type), aligned.size());
    load_row(type, aligned.data(), columns, row.data());
    store_row(tensor.stored, row.data(), columns, rounding_key(0, -1, first_row + i, 0),
              to.data() + i * tensor.row_bytes());
  }
}

[[noreturn]] void fail_tensors(const std::filesystem::path& path, const std::string& first,
                               size_t count, std::string_view fault) {
  fail_input("'{}' does not fit the model: {}{}.", path.string(), first,
             count == 1 ? "" : fmt::format(" ({} tensors {})", count, fault));
}

void load_rows(JobState& state, size_t place, const SafetensorsFile* file) {
  const JobTensor& tensor = state.tensors()[place];
  const int64_t row = tensor.row_bytes();
  std::vector<std::byte> bytes;
  each_few_rows(0, tensor.shape.at(0), row, [&](int64_t first, int64_t count) {
    bytes.resize(static_cast<size_t>(count * row));
    if (file != nullptr) {
      const SafetensorsEntry& entry = file->at(tensor.name);
      const DataType type = *loadable_type(tensor, entry.dtype);
      const int64_t row_in_file = row / size_of(tensor.stored) * size_of(type);
      const auto part = entry.data.subspan(static_cast<size_t>(first * row_in_file),
                                           static_cast<size_t>(count * row_in_file));
      convert_rows(part, type, first, tensor, bytes);
      file->forget(part);
    }
    state.write_rows(place, first, bytes);
  });
}

}  // namespace

SafetensorsTensor describe_tensor(const JobTensor& tensor) {
  const DataType type = tensor.in_rows() ? tensor.stored : DataType::f32;
  return {.name = tensor.name, .dtype = std::string(name_in_file(type)), .shape = tensor.shape};
}

bool is_weight(Role role) { return role == Role::parameter || role == Role::buffer; }

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

SafetensorsWriter::Written write_tensors(const std::filesystem::path& path,
                                         const StateSnapshot& snapshot, bool (*wanted)(Role),
                                         const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsTensor> tensors;
  for (const StateTensor& tensor : snapshot) {
    if (!wanted(tensor.role)) continue;
    tensors.push_back({.name = tensor.name, .dtype = "F32", .shape = tensor.shape});
    tensors.back().data = tensor.values.data();
    tensors.back().size = tensor.values.size() * sizeof(float);
  }
  return write_safetensors(path, tensors, metadata);
}

void check_tensors(const SafetensorsFile& file, const std::filesystem::path& path,
                   const std::vector<JobTensor>& tensors, HeadRule head) {
  const auto passed_over = [&](std::string_view name) {
    return head == HeadRule::optional && name.starts_with(kHeadPrefix);
  };
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string_view> known;
  for (const JobTensor& tensor : tensors) {
    known.insert(tensor.name);
    const SafetensorsEntry* entry = file.find(tensor.name);
    if (entry == nullptr && passed_over(tensor.name)) continue;
    if (entry == nullptr) {
      missing.push_back(fmt::format("it has no tensor '{}'", tensor.name));
    } else if (entry->shape != tensor.shape) {
      misshapen.push_back(fmt::format("tensor '{}' has shape {} where the model has {}",
                                      tensor.name, to_string(entry->shape),
                                      to_string(tensor.shape)));
    } else if (!loadable_type(tensor, entry->dtype)) {
      misshapen.push_back(
          fmt::format("tensor '{}' has type {} where F32 is needed", tensor.name, entry->dtype));
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (known.contains(entry.name) || entry.name.ends_with(kCounter)) continue;
    if (passed_over(entry.name)) continue;
    extra.push_back(fmt::format("the model has no tensor '{}'", entry.name));
  }
  if (!missing.empty()) fail_tensors(path, missing.front(), missing.size(), "are missing");
  if (!misshapen.empty()) fail_tensors(path, misshapen.front(), misshapen.size(), "differ");
  if (!extra.empty()) fail_tensors(path, extra.front(), extra.size(), "are too many");
}

void load_tensors(JobState& state, const std::filesystem::path& path,
                  const std::function<bool(const JobTensor&)>& wanted, HeadRule head) {
  std::vector<size_t> places;
  std::vector<JobTensor> tensors;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    if (!wanted(state.tensors()[i])) continue;
    places.push_back(i);
    tensors.push_back(state.tensors()[i]);
  }
  std::optional<SafetensorsFile> file;
  std::string present(tensors.size(), 'y');
  if (state.holds_values()) {
    file.emplace(path);
    check_tensors(*file, path, tensors, head);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (file->find(tensors[i].name) == nullptr) present[i] = 'n';
    }
  }
  present = state.agree(present);
  std::vector<float> values;
  for (size_t i = 0; i < places.size(); ++i) {
    if (present[i] == 'n') continue;
    if (tensors[i].in_rows()) {
      load_rows(state, places[i], file ? &*file : nullptr);
      continue;
    }
    if (file) {
      const SafetensorsEntry& entry = file->at(tensors[i].name);
      values.resize(entry.data.size() / sizeof(float));
      std::memcpy(values.data(), entry.data.data(), entry.data.size());
    }
    state.write(places[i], values);
  }
}

std::filesystem::path weights_file(const TrainJob& job, TrainingObserver& observer) {
  if (!job.load_weights.empty()) return job.load_weights;
  const auto warn = [&](std::string_view sentence) {
    observer.on_message(Severity::warning, sentence);
  };
  return newest_checkpoint(job.checkpoint, warn) / kWeightsFile;
}

void load_weights(JobState& state, const std::filesystem::path& path) {
  load_tensors(
      state, path, [](const JobTensor& tensor) { return is_weight(tensor.role); },
      HeadRule::optional);
}

void save_weights(const JobState& state, const std::filesystem::path& path,
                  const std::string& model) {
  state.settle();
  std::vector<SafetensorsTensor> tensors;
  std::vector<size_t> places;
  for (const bool in_rows : {false, true}) {  // 16 bits behind 32, so that all are aligned
    for (size_t i = 0; i < state.tensors().size(); ++i) {
      const JobTensor& tensor = state.tensors()[i];
      if (!is_weight(tensor.role) || tensor.in_rows() != in_rows) continue;
      tensors.push_back(describe_tensor(tensor));
      places.push_back(i);
    }
  }
  std::optional<SafetensorsWriter> writer;
  if (state.holds_values())
    writer.emplace(path, tensors,
                   std::map<std::string, std::string>{{"format", "pt"}, {"model", model}});
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

}  // namespace millrace
