// What a stage of a planned job takes on a device: seconds and bytes, before any waiting.
#pragma once

#include <vector>

#include "base/json.h"
#include "planner/cost/cost_context.h"
#include "planner/cost/planned_job.h"

namespace millrace::planner {

// Seconds of one operator for `samples` samples on a device.
double seconds_of(const OperatorWork& work, double samples, const simulate::DeviceKind& device,
                  graph::DataType precision, const OperatorConstants& constants);

// Seconds of a layer's passes and update on one device in a system: what was measured, or by
// formula.
struct PassSeconds {
  double forward = 0, backward = 0, update = 0;
  double weights = 0;  // of `backward`, for gradients of weights; half where only sums are measured
};

PassSeconds seconds_of(const LayerWork& layer, double samples, const simulate::DeviceKind& device,
                       graph::DataType precision, const OperatorConstants& constants,
                       const SoftwareConstants& software);

// How much longer everything takes because so many devices wait for the slowest of them.
double straggling(int devices, const SoftwareConstants& software);

// Bytes of each gradient between devices.
double gradient_size(const PlannedJob& job, const SoftwareConstants& software);

// Part of the backward pass, and the bytes of gradients that are ready behind it.
struct BackwardPart {
  double seconds = 0;
  double gradient_bytes = 0;
  double weight_seconds = 0;  // of `seconds`, for gradients of weights
};

// What the devices of a stage that divide its layers do together, while each waits.
struct StageExchange {
  simulate::Collective collective = simulate::Collective::all_reduce;
  double bytes = 0;  // of the whole tensor
};

struct StageCost {
  double samples = 0;  // per device and micro-batch
  double forward = 0;  // seconds of a micro-batch
  std::vector<BackwardPart> backward;
  std::vector<StageExchange> forward_exchanges, backward_exchanges;  // of a micro-batch
  double update = 0;                                                 // seconds, per step
  double gather_bytes = 0;    // of weights, after an update that replicas share
  double boundary_bytes = 0;  // that leave the stage forward, per micro-batch, from all its devices

  double backward_seconds() const;
  double weight_seconds() const;
  double gradient_bytes() const;
};

StageCost stage_cost(const CostContext& context, const PlannedJob& job, int stage);

// The classifier: seconds per step on each device, beside the network's last stage.
struct HeadCost {
  double compute = 0;
  double gather_bytes = 0;    // all-gather of embeddings, and back
  double gradient_bytes = 0;  // all-reduce of a replicated classifier
  double weight_bytes = 0;    // memory of centres and their momentum
  double working_bytes = 0;   // logits, gradients and copies
};

HeadCost head_cost(const CostContext& context, const PlannedJob& job);

// Memory of a device of a stage.
struct StageMemory {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0,
         communication = 0, context = 0;

  double total() const;
};

// `row`: what the stage does, which tells the micro-batches that are under way at once and the
// versions of its weights that are kept.
StageMemory stage_memory(const CostContext& context, const PlannedJob& job, int stage,
                         const parallel::Row& row);

}  // namespace millrace::planner
