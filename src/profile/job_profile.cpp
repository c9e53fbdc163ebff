#include "profile/job_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/file.h"

namespace millrace::profile {
namespace {

double bytes_of(const graph::TensorType& type) {
  return static_cast<double>(type.elements() * graph::size_of(type.dtype));
}

std::vector<LayerCost> layers_of(const graph::Graph& network) {
  std::vector<LayerCost> layers;
  std::map<graph::OperatorId, int> place;
  for (const graph::OperatorId id : network.order()) {
    const graph::Operator& op = network.op(id);
    LayerCost layer = {.name = op.name, .type = op.type};
    for (const graph::TensorId input : op.inputs) {
      const graph::Tensor& tensor = network.tensor(input);
      if (tensor.role == graph::Role::parameter) layer.parameter_bytes += bytes_of(tensor.type);
      const auto producer = place.find(tensor.producer);
      if (tensor.producer == graph::kNone || producer == place.end()) continue;
      if (std::find(layer.inputs.begin(), layer.inputs.end(), producer->second) ==
          layer.inputs.end()) {
        layer.inputs.push_back(producer->second);
      }
    }
    for (const graph::TensorId output : op.outputs) {
      layer.activation_bytes += bytes_of(network.tensor(output).type);
    }
    place[id] = static_cast<int>(layers.size());
    layers.push_back(std::move(layer));
  }
  return layers;
}

// The layer whose name an instruction's begins with: "features.6.weight/reorder" is "features.6".
const int* owner_of(const std::map<std::string, int, std::less<>>& layers, std::string_view name) {
  while (true) {
    const auto found = layers.find(name);
    if (found != layers.end()) return &found->second;
    const size_t end = name.find_last_of("/.");
    if (end == std::string_view::npos) return nullptr;
    name = name.substr(0, end);
  }
}

ProgramProfile describe(const MeasuredProgram& measured) {
  ProgramProfile profile = {measured.stage, measured.member, {}};
  for (size_t i = 0; i < measured.costs.size(); ++i) {
    const compile::Instruction& instruction = measured.program->instructions[i];
    profile.operators.push_back({instruction.name, instruction.type, instruction.implementation,
                                 std::string(graph::name_of(instruction.phase)),
                                 measured.costs[i].busy_seconds, measured.costs[i].seconds,
                                 measured.spread[i], instruction.arithmetic,
                                 static_cast<double>(instruction.bytes_touched)});
  }
  profile.round_seconds = measured.totals;
  profile.copies = measured.copies;
  profile.carry_seconds = measured.carry_seconds;
  return profile;
}

// Members of a stage do the same at the same time: the first stands for all.
void add_up(JobProfile& profile) {
  std::map<std::string, int, std::less<>> places;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    places[profile.layers[i].name] = static_cast<int>(i);
  }
  for (const ProgramProfile& program : profile.programs) {
    if (program.member != 0) continue;
    for (const OperatorCost& cost : program.operators) {
      const int* owner = owner_of(places, cost.name);
      if (owner == nullptr) {
        profile.other_seconds += cost.seconds;
        continue;
      }
      LayerCost& layer = profile.layers[static_cast<size_t>(*owner)];
      double& sum = cost.phase == "forward"    ? layer.forward_seconds
                    : cost.phase == "backward" ? layer.backward_seconds
                                               : layer.update_seconds;
      sum += cost.seconds;
    }
  }
}

}  // namespace

JobProfile describe_measured(const train::StepSettings& job, train::Engine& engine,
                             const std::vector<MeasuredProgram>& programs, int rounds) {
  JobProfile profile;
  profile.model = job.model;
  profile.batch = job.options.batch;
  profile.micro_batch = engine.graphs().micro_batch();
  profile.samples = std::max<int64_t>(1, profile.micro_batch / engine.graphs().members(0));
  profile.image = job.options.image;
  profile.threads = engine.device().threads();
  profile.devices = static_cast<int>(job.plan.devices().size());
  profile.rounds = rounds;
  models::ModelOptions sizes = job.options;
  sizes.batch = profile.samples;
  profile.layers = layers_of(models::build_model(job.model, sizes));
  for (const MeasuredProgram& measured : programs) {
    profile.programs.push_back(describe(measured));
    profile.step_spread = std::max(profile.step_spread, measured.round_spread());
  }
  add_up(profile);
  return profile;
}

JobProfile profile_job(const train::TrainJob& job, const MeasureOptions& options,
                       train::TrainingObserver& observer) {
  train::Engine engine(job, train::Purpose::training, observer);
  engine.start(job.seed);
  JobProfile profile =
      describe_measured(job, engine, measure_programs(engine, options), options.rounds);
  profile.exchange = measure_local_exchange(profile.devices);
  return profile;
}

planner::Profile to_pipedream(const JobProfile& profile) {
  constexpr double kMilliseconds = 1e3;
  planner::Profile made;
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerCost& layer = profile.layers[i];
    made.nodes.push_back({.id = fmt::format("node{}", i + 1),
                          .description = fmt::format("{}({})", layer.type, layer.name),
                          .forward_milliseconds = kMilliseconds * layer.forward_seconds,
                          .backward_milliseconds = kMilliseconds * layer.backward_seconds,
                          .activation_bytes = layer.activation_bytes,
                          .parameter_bytes = layer.parameter_bytes,
                          .update_milliseconds = kMilliseconds * layer.update_seconds});
    for (const int input : layer.inputs) made.edges.emplace_back(input, static_cast<int>(i));
  }
  return made;
}

PlanningProfile read_planning_profile(const std::string& file) {
  const std::string text = read_text(file);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || text[first] != '{') return {planner::parse_profile(text, file)};
  const JobProfile saved = parse_job_profile(text, file);
  PlanningProfile planning = {to_pipedream(saved), static_cast<double>(saved.samples)};
  for (size_t i = 0; i < saved.layers.size(); ++i) {
    planning.profile.nodes[i].id = saved.layers[i].name;
  }
  return planning;
}

std::string layer_table(const JobProfile& profile, size_t most) {
  std::vector<const LayerCost*> order;
  double total = profile.other_seconds;
  for (const LayerCost& layer : profile.layers) {
    order.push_back(&layer);
    total += layer.seconds();
  }
  std::stable_sort(order.begin(), order.end(), [](const LayerCost* a, const LayerCost* b) {
    return a->seconds() > b->seconds();
  });
  std::string text = fmt::format("{:<32}{:<24}{:>10}{:>10}{:>10}{:>10}{:>8}\n", "layer", "operator",
                                 "forward", "backward", "update", "ms", "share");
  for (size_t i = 0; i < std::min(most, order.size()); ++i) {
    const LayerCost& layer = *order[i];
    text += fmt::format("{:<32}{:<24}{:>10.3f}{:>10.3f}{:>10.3f}{:>10.3f}{:>6.1f} %\n", layer.name,
                        layer.type, 1e3 * layer.forward_seconds, 1e3 * layer.backward_seconds,
                        1e3 * layer.update_seconds, 1e3 * layer.seconds(),
                        total > 0 ? 100 * layer.seconds() / total : 0.0);
  }
  text += fmt::format("all {} layers, and what belongs to none: {:.3f} ms\n", order.size(),
                      1e3 * total);
  return text;
}

}  // namespace millrace::profile
