// What a network has to do, layer by layer and for any batch: arithmetic, bytes, weights and
// activations, read off its graph. No devices, no times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "models/models.h"

namespace millrace {

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
  memory,  // moves its tensors and computes little
};

std::string_view name_of(WorkKind kind);

// One operator of the forward or backward pass. Elements count inputs and outputs together.
struct OperatorWork {
  WorkKind kind = WorkKind::memory;
  Linear operations;
  Linear elements;
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
  double parameters = 0;  // elements
  bool backbone = false;  // counts for shares of the operators, as in parallel/partition.h
  Linear saved;           // elements made here that the backward pass reads
  Linear largest;         // elements of the largest tensor that the layer makes or takes
  Linear cut;             // elements that cross if a stage ends behind this layer
  std::optional<MeasuredSeconds> measured = {};  // instead of what the work costs by formula
};

struct NetworkWork {
  std::string model;
  std::vector<LayerWork> layers;  // in an order in which data flows
  Linear input;                   // elements of the image
};

// Reads the work of a named model; `options.batch` does not matter. Throws InputError as
// build_model does.
NetworkWork work_of(std::string_view model, ModelOptions options);

// Sums over layers [begin, end).
double parameters_of(const NetworkWork& network, int begin, int end);
Linear saved_by(const NetworkWork& network, int begin, int end);

}  // namespace millrace
