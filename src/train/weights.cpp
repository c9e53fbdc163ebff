#include "train/weights.h"

#include <cstring>
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

std::vector<Slot> slots_of(const Session& session, bool (*wanted)(Role)) {
  std::vector<Slot> slots;
  for (const Slot& slot : session.state()) {
    if (wanted(slot.role)) slots.push_back(slot);
  }
  return slots;
}

[[noreturn]] void fail_tensors(const std::filesystem::path& path, const std::string& first,
                               size_t count, std::string_view fault) {
  fail_input("'{}' does not fit the model: {}{}.", path.string(), first,
             count == 1 ? "" : fmt::format(" ({} tensors {})", count, fault));
}

}  // namespace

bool is_weight(Role role) { return role == Role::parameter || role == Role::buffer; }

void take_snapshot(const Session& session, StateSnapshot& snapshot) {
  const std::vector<Slot>& slots = session.state();
  snapshot.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    StateTensor& tensor = snapshot[i];
    tensor.name = slots[i].name;
    tensor.role = slots[i].role;
    tensor.shape = slots[i].type.shape;
    tensor.values.resize(static_cast<size_t>(slots[i].type.elements()));
    session.read_state(slots[i], tensor.values);
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
                   std::span<const Slot> slots, HeadRule head) {
  const auto passed_over = [&](std::string_view name) {
    return head == HeadRule::optional && name.starts_with(kHeadPrefix);
  };
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string_view> known;
  for (const Slot& slot : slots) {
    known.insert(slot.name);
    const SafetensorsEntry* entry = file.find(slot.name);
    if (entry == nullptr && passed_over(slot.name)) continue;
    if (entry == nullptr) {
      missing.push_back(fmt::format("it has no tensor '{}'", slot.name));
    } else if (entry->shape != slot.type.shape) {
      misshapen.push_back(fmt::format("tensor '{}' has shape {} where the model has {}", slot.name,
                                      to_string(entry->shape), to_string(slot.type.shape)));
    } else if (entry->dtype != "F32") {
      misshapen.push_back(
          fmt::format("tensor '{}' has type {} where F32 is needed", slot.name, entry->dtype));
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

void load_tensors(Session& session, const std::filesystem::path& path, bool (*wanted)(Role),
                  HeadRule head) {
  const SafetensorsFile file(path);
  const std::vector<Slot> slots = slots_of(session, wanted);
  check_tensors(file, path, slots, head);
  std::vector<float> values;
  for (const Slot& slot : slots) {
    if (file.find(slot.name) == nullptr) continue;
    const SafetensorsEntry& entry = file.at(slot.name);
    values.resize(static_cast<size_t>(slot.type.elements()));
    std::memcpy(values.data(), entry.data.data(), entry.data.size());
    session.write_state(slot, values);
  }
}

std::filesystem::path weights_file(const TrainJob& job, TrainingObserver& observer) {
  if (!job.load_weights.empty()) return job.load_weights;
  const auto warn = [&](std::string_view sentence) {
    observer.on_message(Severity::warning, sentence);
  };
  return newest_checkpoint(job.checkpoint, warn) / kWeightsFile;
}

void load_weights(Session& session, const std::filesystem::path& path) {
  load_tensors(session, path, is_weight, HeadRule::optional);
}

void save_weights(const Session& session, const std::filesystem::path& path,
                  const std::string& model) {
  const std::vector<Slot> slots = slots_of(session, is_weight);
  std::vector<SafetensorsTensor> tensors;
  for (const Slot& slot : slots) tensors.push_back(describe_tensor(slot.name, slot.type.shape));
  SafetensorsWriter writer(path, tensors, {{"format", "pt"}, {"model", model}});
  std::vector<float> values;
  for (const Slot& slot : slots) {
    values.resize(static_cast<size_t>(slot.type.elements()));
    session.read_state(slot, values);
    writer.append(values.data(), values.size() * sizeof(float));
  }
  writer.commit();
}

}  // namespace millrace
