#include "train/settled_centres.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/head/row_update.h"

namespace millrace::train {
namespace {

constexpr std::string_view kCentresTensor = "head.centres";
constexpr std::string_view kStateSuffixes[] = {".momentum", ".first_moment", ".second_moment"};

kernels::UpdateRule recorded_rule(const Json& job, size_t states) {
  const auto number = [&](const char* name) { return job.at(name).get<double>(); };
  kernels::UpdateRule rule = {graph::RuleKind::plain, number("momentum"),   number("weight-decay"),
                              number("adam-beta1"),   number("adam-beta2"), number("adam-epsilon")};
  if (states == 0) rule.momentum = 0;
  if (states == 1) {
    rule.kind =
        job.at("nesterov").get<bool>() ? graph::RuleKind::nesterov : graph::RuleKind::momentum;
  }
  if (states == 2) rule.kind = graph::RuleKind::adamw;
  return rule;
}

graph::DataType stored_type(const std::string& name) {
  if (name == "F32") return graph::DataType::f32;
  return name == "BF16" ? graph::DataType::bf16 : graph::DataType::f16;
}

}  // namespace

SettledCentres::SettledCentres(const std::filesystem::path& checkpoint, const Manifest& manifest,
                               const ShardReader& reader)
    : reader_(reader) {
  const auto find = [&](const std::string& name) {
    const auto& all = reader.tensors();
    return static_cast<size_t>(
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; }) -
        all.begin());
  };
  const auto add = [&](std::string_view suffix) {
    const size_t found = find(std::string(kCentresTensor) + std::string(suffix));
    if (found < reader.tensors().size()) tensors_.push_back(found);
    return found < reader.tensors().size();
  };
  if (!add("")) fail_input("'{}' has no tensor '{}'.", checkpoint.string(), kCentresTensor);
  for (const std::string_view suffix : kStateSuffixes) add(suffix);
  const size_t states = tensors_.size() - 1;
  if (!add(graph::kHeadCurrentSuffix)) return;
  const data::SafetensorsFile optimizer(checkpoint / kOptimizerFile);
  const data::SafetensorsEntry& entry = optimizer.at(graph::kHeadRatesName);
  rates_.resize(entry.data.size() / sizeof(float));
  if (entry.dtype != "F32" || static_cast<int64_t>(rates_.size()) != graph::kHeadRates) {
    fail_input("'{}' has the tensor '{}' as {} {} where F32 [{}] is needed.",
               (checkpoint / kOptimizerFile).string(), graph::kHeadRatesName, entry.dtype,
               graph::to_string(entry.shape), graph::kHeadRates);
  }
  std::memcpy(rates_.data(), entry.data.data(), entry.data.size());
  try {
    rule_ = recorded_rule(manifest.job, states);
  } catch (const Json::exception&) {
    fail_input("The manifest of '{}' does not say by which optimizer its centres were trained.",
               checkpoint.string());
  }
}

void SettledCentres::read(int64_t first, std::span<std::byte> bytes) const {
  reader_.read(tensors_.front(), first, bytes);
  if (rates_.empty()) return;
  const data::SafetensorsTensor& centres = reader_.tensors()[tensors_.front()];
  const size_t states = tensors_.size() - 2;
  kernels::RowUpdate update;
  update.rule = rule_;
  update.storage = stored_type(centres.dtype);
  update.dimension = centres.shape.at(1);
  const int64_t row_bytes = update.dimension * graph::size_of(update.storage);
  const auto count = static_cast<int64_t>(bytes.size()) / row_bytes;
  std::vector<std::vector<std::byte>> state_rows(states, std::vector<std::byte>(bytes.size()));
  for (size_t i = 0; i < states; ++i) reader_.read(tensors_[1 + i], first, state_rows[i]);
  std::vector<int32_t> current(static_cast<size_t>(count));
  reader_.read(tensors_.back(), first, std::as_writable_bytes(std::span(current)));
  std::vector<float> rates = rates_;
  std::vector<kernels::Pause> pauses(kernels::LateRows::workspace_bytes() / sizeof(kernels::Pause));
  std::vector<float> scratch(static_cast<size_t>(update.scratch_elements()));
  const kernels::LateRows late = kernels::LateRows(rule_, update.storage, update.dimension)
                                     .begin(kernels::RowClock(rates.data(), current.data()),
                                            reinterpret_cast<std::byte*>(pauses.data()));
  for (int64_t place = 0; place < count; ++place) {
    if (late.clock().missed(place) == 0) continue;
    kernels::RowUpdate::Row row = {first + place, place, bytes.data() + place * row_bytes, {}};
    for (size_t i = 0; i < states; ++i) row.states[i] = state_rows[i].data() + place * row_bytes;
    update.settle(row, late, scratch.data());
  }
}

}  // namespace millrace::train
