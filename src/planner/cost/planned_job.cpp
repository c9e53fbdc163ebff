#include "planner/cost/planned_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "base/text.h"

namespace millrace {
namespace {

int parse_number(std::string_view text, std::string_view whole, std::string_view flag) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 0) {
    fail_input("{} has '{}' in '{}', which is not a whole number.", flag, text, whole);
  }
  return value;
}

void add_device(std::vector<int>& stage, int machine, int device, int devices_per_machine,
                std::string_view flag) {
  const int id = machine * devices_per_machine + device;
  if (std::find(stage.begin(), stage.end(), id) != stage.end()) {
    fail_input("{} names device {}:{} twice in one stage.", flag, machine, device);
  }
  stage.push_back(id);
}

std::vector<int> parse_stage(const std::string& text, int machines, int devices_per_machine,
                             std::string_view flag) {
  std::vector<int> stage;
  for (const std::string& part : split(text, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string::npos) {
      fail_input("{} has '{}'; a part is MACHINE:DEVICE or MACHINE:FIRST-LAST, such as 0:0-6.",
                 flag, part);
    }
    const int machine = parse_number(std::string_view(part).substr(0, colon), part, flag);
    const std::string_view range = std::string_view(part).substr(colon + 1);
    const size_t dash = range.find('-');
    const int first = parse_number(range.substr(0, dash), part, flag);
    const int last =
        dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1), part, flag);
    if (machine >= machines || last >= devices_per_machine || first > last) {
      fail_input("{} has '{}', but there are {} machines of {} devices, counted from 0.", flag,
                 part, machines, devices_per_machine);
    }
    for (int device = first; device <= last; ++device) {
      add_device(stage, machine, device, devices_per_machine, flag);
    }
  }
  return stage;
}

// Operators that count for shares: those with a weight or two branches, and those right behind one.
std::vector<int> counted_layers(const NetworkWork& network) {
  std::vector<int> counted;
  bool follows = false;
  for (size_t i = 0; i < network.layers.size(); ++i) {
    if (network.layers[i].trained_inputs || follows) counted.push_back(static_cast<int>(i));
    follows = network.layers[i].trained_inputs;
  }
  return counted;
}

}  // namespace

std::string_view name_of(PipelineOrder order) {
  switch (order) {
    case PipelineOrder::gpipe:
      return "gpipe";
    case PipelineOrder::flush:
      return "1f1b-flush";
    case PipelineOrder::one_by_one:
      return "1f1b";
    case PipelineOrder::stale:
      return "ssp";
    case PipelineOrder::two_copies:
      return "2bw";
  }
  throw std::logic_error("unknown order");
}

int PlannedJob::devices() const {
  std::set<int> all;
  for (const PlannedStage& stage : stages) all.insert(stage.devices.begin(), stage.devices.end());
  return static_cast<int>(all.size());
}

double PlannedJob::samples_per_step() const { return round_robin ? batch : batch * devices(); }

std::vector<std::vector<int>> parse_stages(std::string_view text, int machines,
                                           int devices_per_machine, std::string_view flag) {
  std::vector<std::vector<int>> stages;
  for (const std::string& part : split(text, '.')) {
    stages.push_back(parse_stage(part, machines, devices_per_machine, flag));
  }
  return stages;
}

std::string format_stages(const std::vector<PlannedStage>& stages, int devices_per_machine) {
  std::string text;
  for (const PlannedStage& stage : stages) {
    if (!text.empty()) text += ".";
    std::vector<int> devices = stage.devices;
    std::sort(devices.begin(), devices.end());
    for (size_t i = 0; i < devices.size();) {
      size_t last = i;
      while (last + 1 < devices.size() && devices[last + 1] == devices[last] + 1 &&
             devices[last + 1] % devices_per_machine != 0) {
        ++last;
      }
      if (i > 0) text += ",";
      text +=
          fmt::format("{}:{}", devices[i] / devices_per_machine, devices[i] % devices_per_machine);
      if (last > i) text += fmt::format("-{}", devices[last] % devices_per_machine);
      i = last + 1;
    }
  }
  return text;
}

std::vector<int> cut_by_operators(const NetworkWork& network, std::string_view weights,
                                  size_t stages, std::string_view flag) {
  std::vector<int> shares;
  int total = 0;
  for (const std::string& part : split(weights, ':')) {
    shares.push_back(parse_number(part, weights, flag));
    if (shares.back() < 1 || shares.back() > 1 << 20) {
      fail_input("{} has '{}'; each share is a whole number from 1 to {}.", flag, part, 1 << 20);
    }
    total += shares.back();
  }
  if (shares.size() != stages) {
    fail_input("{} has {} shares for {} stages; give one a stage.", flag, shares.size(), stages);
  }
  const std::vector<int> counted = counted_layers(network);
  const auto count = static_cast<int64_t>(counted.size());
  std::vector<int> ends;
  int64_t sum = 0;
  for (size_t stage = 0; stage + 1 < stages; ++stage) {
    sum += shares[stage];
    const auto index = static_cast<size_t>(std::clamp<int64_t>(count * sum / total, 1, count - 1));
    const int end = counted[index];
    if (!ends.empty() && end <= ends.back()) {
      fail_input("{} gives stage {} no operator; the network has {} to share out.", flag, stage,
                 count);
    }
    ends.push_back(end);
  }
  ends.push_back(static_cast<int>(network.layers.size()));
  return ends;
}

}  // namespace millrace
