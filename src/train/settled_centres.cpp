#include "train/settled_centres.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/head/row_update.h"

namespace millrace {
namespace {

constexpr std::string_view kCentres = "head.centres";
constexpr std::string_view kStates[] = {".momentum", ".first_moment", ".second_moment"};

UpdateRule rule_of(const Json& job, size_t states) {
  const auto number = [&](const char* name) { return job.at(name).get<double>(); };
  UpdateRule rule = {RuleKind::plain,      number("momentum"),   number("weight-decay"),
                     number("adam-beta1"), number("adam-beta2"), number("adam-epsilon")};
  if (states == 0) rule.momentum = 0;
  if (states == 1) {
    rule.kind = job.at("nesterov").get<bool>() ? RuleKind::nesterov : RuleKind::momentum;
  }
  if (states == 2) rule.kind = RuleKind::adamw;
  return rule;
}

DataType type_of(const std::string& name) {
  if (name == "F32") return DataType::f32;
  return name == "BF16" ? DataType::bf16 : DataType::f16;
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
    const size_t found = find(std::string(kCentres) + std::string(suffix));
    if (found < reader.tensors().size()) tensors_.push_back(found);
    return found < reader.tensors().size();
  };
  if (!add("")) fail_input("'{}' has no tensor '{}'.", checkpoint.string(), kCentres);
  for (const std::string_view suffix : kStates) add(suffix);
  const size_t states = tensors_.size() - 1;
  if (!add(kHeadCurrentSuffix)) return;
  const SafetensorsFile optimizer(checkpoint / kOptimizerFile);
  const SafetensorsEntry& entry = optimizer.at(kHeadRatesName);
  rates_.resize(entry.data.size() / sizeof(float));
  if (entry.dtype != "F32" || static_cast<int64_t>(rates_.size()) != kHeadRates) {
    fail_input("'{}' has the tensor '{}' as {} {} where F32 [{}] is needed.",
               (checkpoint / kOptimizerFile).string(), kHeadRatesName, entry.dtype,
               to_string(entry.shape), kHeadRates);
  }
  std::memcpy(rates_.data(), entry.data.data(), entry.data.size());
  try {
    rule_ = rule_of(manifest.job, states);
  } catch (const Json::exception&) {
    fail_input("The manifest of '{}' does not say by which optimizer its centres were trained.",
               checkpoint.string());
  }
}

void SettledCentres::each_piece(const std::function<void(std::span<const std::byte>)>& body) const {
  if (rates_.empty()) return reader_.each_piece(tensors_.front(), body);
  const SafetensorsTensor& centres = reader_.tensors()[tensors_.front()];
  const size_t states = tensors_.size() - 2;
  RowUpdate update;
  update.rule = rule_;
  update.storage = type_of(centres.dtype);
  update.dimension = centres.shape.at(1);
  const int64_t row_bytes = update.dimension * size_of(update.storage);
  const LateRows all(rule_, update.storage, update.dimension);
  std::vector<Pause> pauses(LateRows::workspace_bytes() / sizeof(Pause));
  std::vector<float> scratch(static_cast<size_t>(update.scratch_elements()));
  std::vector<float> rates = rates_;
  std::vector<std::vector<std::byte>> rows(1 + states);
  std::vector<int32_t> current;
  each_few_rows(0, reader_.classes(), row_bytes, [&](int64_t first, int64_t count) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].resize(static_cast<size_t>(count * row_bytes));
      reader_.read(tensors_[i], first, rows[i]);
    }
    current.resize(static_cast<size_t>(count));
    reader_.read(tensors_.back(), first, std::as_writable_bytes(std::span(current)));
    const LateRows late = all.begin(RowClock(rates.data(), current.data()),
                                    reinterpret_cast<std::byte*>(pauses.data()));
    for (int64_t place = 0; place < count; ++place) {
      if (late.clock().missed(place) == 0) continue;
      RowUpdate::Row row = {first + place, place, rows[0].data() + place * row_bytes, {}};
      for (size_t i = 0; i < states; ++i) row.states[i] = rows[i + 1].data() + place * row_bytes;
      update.settle(row, late, scratch.data());
    }
    body(rows[0]);
  });
}

}  // namespace millrace
