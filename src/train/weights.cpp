#include "train/weights.h"

#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "models/models.h"
#include "train/checkpoint.h"

namespace millrace {
namespace {

constexpr std::string_view kCounter = "num_batches_tracked";

SafetensorsTensor describe_tensor(const std::string& name, const Shape& shape) {
  return {.name = name, .dtype = "F32", .shape = shape};
}

[[noreturn]] void fail_tensors(const std::filesystem::path& path, const std::string& first,
                               size_t count, std::string_view fault) {
  fail_input("'{}' does not fit the model: {}{}.", path.string(), first,
             count == 1 ? "" : fmt::format(" ({} tensors {})", count, fault));
}

}  // namespace

bool is_weight(Role role) { return role == Role::parameter || role == Role::buffer; }

void take_snapshot(const JobState& state, StateSnapshot& snapshot) {
  const std::vector<JobTensor>& tensors = state.tensors();
  snapshot.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    StateTensor& tensor = snapshot[i];
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
    tensors.push_back(describe_tensor(tensor.name, tensor.shape));
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
    } else if (entry->dtype != "F32") {
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

void load_tensors(JobState& state, const std::filesystem::path& path, bool (*wanted)(Role),
                  HeadRule head) {
  std::vector<size_t> places;
  std::vector<JobTensor> tensors;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    if (!wanted(state.tensors()[i].role)) continue;
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
  load_tensors(state, path, is_weight, HeadRule::optional);
}

void save_weights(const JobState& state, const std::filesystem::path& path,
                  const std::string& model) {
  std::vector<SafetensorsTensor> tensors;
  for (const JobTensor& tensor : state.tensors()) {
    if (is_weight(tensor.role)) tensors.push_back(describe_tensor(tensor.name, tensor.shape));
  }
  std::optional<SafetensorsWriter> writer;
  if (state.holds_values())
    writer.emplace(path, tensors,
                   std::map<std::string, std::string>{{"format", "pt"}, {"model", model}});
  std::vector<float> values;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    if (!is_weight(state.tensors()[i].role)) continue;
    state.read(i, values);
    if (writer) writer->append(values.data(), values.size() * sizeof(float));
  }
  if (writer) writer->commit();
}

}  // namespace millrace
