#include "planner/cost/stage_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace::planner {
namespace {

constexpr double kBucketBytes = 25e6;  // gradients are reduced in pieces of about this size
constexpr double kElementBytes = 4;

// Rates of a V100: of the devices that the shares were fitted on, it is the fastest.
constexpr double kKnownOperations = 15.7e12, kKnownHalfOperations = 125e12, kKnownBandwidth = 900e9;

double counted(double rate, double known, const OperatorConstants& constants) {
  return rate > known ? known * std::pow(rate / known, constants.beyond) : rate;
}

// Bytes per second that operators reach.
double memory_rate(const simulate::DeviceKind& device, const OperatorConstants& constants) {
  return counted(device.memory_bandwidth, kKnownBandwidth, constants) * constants.memory;
}

double share_of(WorkKind kind, graph::DataType precision, const OperatorConstants& constants) {
  const bool half = precision != graph::DataType::f32;
  switch (kind) {
    case WorkKind::convolution:
      return half ? constants.half_convolution : constants.convolution;
    case WorkKind::convolution3:
      return half ? constants.half_convolution : constants.convolution3;
    case WorkKind::pointwise:
      return half ? constants.half_convolution : constants.pointwise;
    case WorkKind::linear:
      return half ? constants.half_linear : constants.linear;
    case WorkKind::memory:
    case WorkKind::exchange:
      break;
  }
  return 0;
}

// Operations per second of a kind. A device computes 16-bit numbers in float32 where that is faster
// or all that it can.
double rate_of(WorkKind kind, const simulate::DeviceKind& device, graph::DataType precision,
               const OperatorConstants& constants) {
  const auto reached = [&](double rate, double known, graph::DataType type) {
    return counted(rate, known, constants) * share_of(kind, type, constants);
  };
  constexpr auto kFull = graph::DataType::f32;
  const double full =
      std::max(reached(device.operations(kFull), kKnownOperations, kFull),
               reached(device.tf32_operations, kKnownHalfOperations, graph::DataType::f16));
  if (precision == kFull) return full;
  return std::max(full, reached(device.operations(precision), kKnownHalfOperations, precision));
}

bool is_convolution(WorkKind kind) {
  return kind == WorkKind::convolution || kind == WorkKind::convolution3 ||
         kind == WorkKind::pointwise;
}

bool shares_optimizer(const PlannedJob& job, int stage) {
  return job.share_optimizer && !job.round_robin && job.stages.at(stage).devices.size() > 1;
}

// How many times longer an update takes than one with momentum alone, which `update_passes` counts:
// each state more is read and written.
double update_factor(const PlannedJob& job, const SoftwareConstants& software) {
  if (software.update_passes <= 0) return 1;
  return std::max(1.0, software.update_passes + 2.0 * (job.optimizer_states - 1)) /
         software.update_passes;
}

void add_exchanges(const std::vector<OperatorWork>& works, double samples, const PlannedJob& job,
                   std::vector<StageExchange>& exchanges) {
  for (const OperatorWork& work : works) {
    if (work.kind != WorkKind::exchange) continue;
    exchanges.push_back({work.collective, work.elements.at(samples) * job.boundary_size()});
  }
}

}  // namespace

double gradient_size(const PlannedJob& job, const SoftwareConstants& software) {
  if (job.wire) return static_cast<double>(graph::size_of(*job.wire));
  return job.precision != graph::DataType::f32 && software.half_gradients ? 2 : kElementBytes;
}

double seconds_of(const OperatorWork& work, double samples, const simulate::DeviceKind& device,
                  graph::DataType precision, const OperatorConstants& constants) {
  const double elements = work.elements.at(samples);
  if (elements <= 0 || work.kind == WorkKind::exchange) return 0;
  const double memory =
      elements * static_cast<double>(graph::size_of(precision)) / memory_rate(device, constants);
  double compute = 0;
  if (work.kind != WorkKind::memory) {
    compute = (work.operations.at(samples) + constants.half_operations) /
              rate_of(work.kind, device, precision, constants);
  }
  return std::max(memory, compute) + constants.kernel_seconds;
}

PassSeconds seconds_of(const LayerWork& layer, double samples, const simulate::DeviceKind& device,
                       graph::DataType precision, const OperatorConstants& constants,
                       const SoftwareConstants& software) {
  if (layer.measured) {
    const double backward = layer.measured->backward.at(samples);
    return {layer.measured->forward.at(samples), backward, layer.measured->update,
            layer.parameters > 0 ? backward / 2 : 0};
  }
  const double bytes_per_second = memory_rate(device, constants);
  const auto sum = [&](const std::vector<OperatorWork>& works, bool weights_only) {
    double seconds = 0;
    for (const OperatorWork& work : works) {
      if (weights_only && !work.weights) continue;
      seconds += seconds_of(work, samples, device, precision, constants);
      if (precision == graph::DataType::f32 || !is_convolution(work.kind)) continue;
      seconds += software.transpose_passes * work.elements.at(samples) *
                 static_cast<double>(graph::size_of(precision)) / bytes_per_second;
    }
    return seconds * software.slowness;
  };
  return {sum(layer.forward, false), sum(layer.backward, false),
          layer.parameters * kElementBytes * software.update_passes / bytes_per_second,
          sum(layer.backward, true)};
}

double straggling(int devices, const SoftwareConstants& software) {
  return 1 + software.straggling * std::log2(static_cast<double>(devices));
}

double StageCost::backward_seconds() const {
  double sum = 0;
  for (const BackwardPart& part : backward) sum += part.seconds;
  return sum;
}

double StageCost::weight_seconds() const {
  double sum = 0;
  for (const BackwardPart& part : backward) sum += part.weight_seconds;
  return sum;
}

double StageCost::gradient_bytes() const {
  double sum = 0;
  for (const BackwardPart& part : backward) sum += part.gradient_bytes;
  return sum;
}

StageCost stage_cost(const CostContext& context, const PlannedJob& job, int stage) {
  const auto& [network, cluster, constants, software] = context;
  const PlannedStage& planned = job.stages.at(stage);
  const double replicas = job.round_robin ? 1 : static_cast<double>(planned.devices.size());
  StageCost cost;
  cost.samples = job.samples_per_step() / replicas / job.micro_batches;
  const double slower = straggling(job.devices(), software);
  const double states = update_factor(job, software);
  BackwardPart part;
  double parameters = 0;
  for (int i = planned.end - 1; i >= planned.begin; --i) {
    const LayerWork& layer = network.layers.at(i);
    const PassSeconds seconds = seconds_of(layer, cost.samples, cluster.device, job.precision,
                                           constants.operators, software);
    cost.forward += seconds.forward * slower;
    part.seconds += (seconds.backward + (job.recompute ? seconds.forward : 0)) * slower;
    part.weight_seconds += seconds.weights * slower;
    cost.update += layer.measured ? seconds.update : seconds.update * states;
    part.gradient_bytes +=
        (layer.parameters - layer.split_parameters) * gradient_size(job, software);
    add_exchanges(layer.forward, cost.samples, job, cost.forward_exchanges);
    add_exchanges(layer.backward, cost.samples, job, cost.backward_exchanges);
    parameters += layer.parameters;
    if (part.gradient_bytes >= kBucketBytes || i == planned.begin) {
      cost.backward.push_back(part);
      part = {};
    }
  }
  if (shares_optimizer(job, stage)) {
    cost.update /= replicas;
    cost.gather_bytes = parameters * kElementBytes;
  }
  if (planned.end < static_cast<int>(network.layers.size())) {
    cost.boundary_bytes =
        network.layers[planned.end - 1].cut.at(cost.samples) * replicas * job.boundary_size();
  }
  return cost;
}

HeadCost head_cost(const CostContext& context, const PlannedJob& job) {
  const auto& [network, cluster, constants, software] = context;
  using Parallel = PlannedHead::Parallel;
  const PlannedHead& head = job.head;
  HeadCost cost;
  if (head.parallel == Parallel::none) return cost;
  const double devices = job.devices();
  const bool replicated = head.parallel == Parallel::data;
  const double rows = replicated ? job.batch : job.batch * devices;
  const double local = replicated ? head.classes : head.classes / devices;
  const double used = head.parallel == Parallel::sampled ? local * head.sample_rate : local;
  const double row_bytes = head.features * kElementBytes;
  const OperatorConstants& operators = constants.operators;
  const double linear = rate_of(WorkKind::linear, cluster.device, job.precision, operators);
  cost.compute = 6 * rows * head.features * used / linear +
                 (rows * used * kElementBytes * software.head_logit_passes +
                  used * row_bytes * software.head_weight_passes) /
                     memory_rate(cluster.device, operators);
  if (head.parallel == Parallel::sampled) cost.compute *= software.head_sampling;
  if (replicated) {
    cost.gradient_bytes = used * row_bytes;
  } else {
    cost.gather_bytes = rows * row_bytes;
  }
  cost.weight_bytes = local * row_bytes * 2;
  cost.working_bytes = rows * used * kElementBytes * software.head_logit_copies +
                       used * row_bytes * software.head_weight_copies;
  return cost;
}

double StageMemory::total() const {
  return weights + gradients + optimizer + activations + workspace + communication + context;
}

namespace {

// Bytes of activations where they are computed again: what enters each segment of the stage is kept
// for every micro-batch in flight, and one segment is there in full. As many segments as take
// least.
double recomputed_bytes(const NetworkWork& network, const PlannedStage& stage, double samples,
                        double entering, double in_flight, double bytes_per_element,
                        double bytes_per_saved) {
  constexpr int kMostSegments = 16;
  std::vector<double> saved = {0};  // up to each layer of the stage
  for (int i = stage.begin; i < stage.end; ++i) {
    saved.push_back(saved.back() + saved_by(network, i, i + 1).at(samples));
  }
  double least = std::numeric_limits<double>::infinity();
  for (int segments = 1; segments <= std::min(kMostSegments, stage.end - stage.begin); ++segments) {
    double kept = entering, largest = 0, start = 0;
    int ended = 0;
    for (size_t i = 1; i < saved.size(); ++i) {
      if (i + 1 < saved.size() && saved[i] * segments < saved.back() * (ended + 1)) continue;
      largest = std::max(largest, saved[i] - start);
      start = saved[i];
      if (i + 1 == saved.size()) break;
      ++ended;
      kept += network.layers[static_cast<size_t>(stage.begin) + i - 1].cut.at(samples);
    }
    least = std::min(least, kept * bytes_per_element * in_flight + largest * bytes_per_saved);
  }
  return least;
}

}  // namespace

StageMemory stage_memory(const CostContext& context, const PlannedJob& job, int stage,
                         const parallel::Row& row) {
  const auto& [network, cluster, constants, software] = context;
  const PlannedStage& planned = job.stages.at(stage);
  const double replicas = job.round_robin ? 1 : static_cast<double>(planned.devices.size());
  const double samples = job.samples_per_step() / replicas / job.micro_batches;
  const double size = static_cast<double>(graph::size_of(job.precision));
  const double parameters = parameters_of(network, planned.begin, planned.end) * kElementBytes;
  StageMemory memory;
  memory.weights = parameters * (job.stages.size() > 1 ? static_cast<double>(row.versions) : 1);
  if (job.precision != graph::DataType::f32) memory.weights += parameters / 2;
  memory.gradients = parameters;
  memory.optimizer = parameters * job.optimizer_states;
  if (shares_optimizer(job, stage)) memory.optimizer /= replicas;
  if (planned.devices.size() > 1) {
    memory.communication = parameters * std::max(0.0, software.parameter_copies - 3);
  }
  Linear saved = saved_by(network, planned.begin, planned.end);
  double largest = 0, largest3 = 0;  // elements
  for (int i = planned.begin; i < planned.end; ++i) {
    const LayerWork& layer = network.layers[i];
    largest = std::max(largest, layer.largest.at(samples));
    const bool measured = layer.forward.empty();  // a profile does not say how
    if (measured || layer.forward.front().kind != WorkKind::convolution3) continue;
    largest3 = std::max(largest3, layer.largest.at(samples));
  }
  const Linear entering =
      planned.begin == 0 ? network.input : network.layers[planned.begin - 1].cut;
  const auto flying = static_cast<double>(row.in_flight);
  const double saved_size = size * software.activation_factor;
  memory.activations =
      job.recompute ? recomputed_bytes(network, planned, samples, entering.at(samples), flying,
                                       size, saved_size)
                    : (saved.at(samples) * saved_size + entering.at(samples) * size) * flying;
  if (planned.end < static_cast<int>(network.layers.size())) {
    memory.communication += network.layers[planned.end - 1].cut.at(samples) * size;
  }
  memory.workspace =
      largest * size * software.workspace_factor +
      std::min(largest3 * size * software.algorithm_factor, software.algorithm_limit);
  memory.context = software.context_bytes + (job.real_data ? software.reading_bytes : 0);
  if (planned.end == static_cast<int>(network.layers.size())) {
    const HeadCost head = head_cost(context, job);
    memory.weights += head.weight_bytes / 2;
    memory.optimizer += head.weight_bytes / 2;
    memory.workspace += head.working_bytes;
  }
  return memory;
}

}  // namespace millrace::planner
