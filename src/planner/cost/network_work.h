// What a network has to do, layer by layer and for any batch: arithmetic, bytes, weights and
// activations, read off its graph. No devices, no times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/models.h"
#include "parallel/policy.h"
#include "simulate/collective.h"

namespace millrace::planner {

// A number that grows with the batch: fixed + per_sample · samples.
struct Linear {
  double fixed = 0;
  double per_sample = 0;

  double at(double samples) const { return fixed + per_sample * samples; }
  Linear& operator+=(const Linear& other) {
    fixed += other.fixed;
    per_sample += other.per_sample;
    return *this;
  }
};

// How an operator spends its time.
enum class WorkKind : uint8_t {
  convolution,   // any but the next two
  convolution3,  // 3x3 with stride 1: fast algorithms exist
  pointwise,     // 1x1
  linear,
  memory,    // moves its tensors and computes little
  exchange,  // waits for the other devices of a stage that divide its layers
};

// One operator of the forward or backward pass. Elements count inputs and outputs together.
struct OperatorWork {
  WorkKind kind = WorkKind::memory;
  Linear operations;
  Linear elements;
  bool weights = false;  // makes gradients of weights, for which no earlier layer waits
  simulate::Collective collective =
      simulate::Collective::all_reduce;  // of an exchange, whose elements are the whole's
};

// What a layer took where it was measured: seconds of a pass by the number of samples, and of an
// update of its weights.
struct MeasuredSeconds {
  Linear forward, backward;
  double update = 0;
};

// A forward operator with the backward operators that belong to it.
struct LayerWork {
  std::string name;
  std::string type;
  std::vector<OperatorWork> forward, backward;
  double parameters = 0;        // elements
  double split_parameters = 0;  // of these, those that no other device has
  bool backbone = false;        // counts for shares of the operators, as in parallel/partition.h
  Linear saved;                 // elements made here that the backward pass reads
  Linear largest;               // elements of the largest tensor that the layer makes or takes
  Linear cut;                   // elements that cross if a stage ends behind this layer
  std::optional<MeasuredSeconds> measured = {};  // instead of what the work costs by formula
};

struct NetworkWork {
  std::string model;
  std::vector<LayerWork> layers;  // in an order in which data flows
  Linear input;                   // elements of the image
  // Samples that a device needs at a time: two where a batch norm has one value of each.
  double least_samples = 1;
};

// Reads the work of a named model; `options.batch` does not matter. Throws InputError as
// build_model does.
NetworkWork work_of(std::string_view model, models::ModelOptions options);

// How some devices divide the layers of a model.
struct SharedWork {
  parallel::Parallelism parallelism = parallel::Parallelism::data;
  int members = 1;
  int64_t batch = 1;  // samples of all of them, which decide between ways that are allowed
};

// The same of the graph that the first of these devices runs, for so many samples of each device;
// what they exchange stands among its layers. Throws InputError where they cannot divide it so.
NetworkWork work_of(std::string_view model, models::ModelOptions options, const SharedWork& shared);

// Sums over layers [begin, end).
double parameters_of(const NetworkWork& network, int begin, int end);
Linear saved_by(const NetworkWork& network, int begin, int end);

}  // namespace millrace::planner
