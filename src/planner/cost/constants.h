// The few numbers by which work becomes time and memory: how much of a device's data sheet each
// kind of operator reaches, and how each training system behaves. Kept in data/costs.json, fitted
// by `millrace bench published --fit`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace millrace::planner {

// Shares of the data sheet's rates that operators reach; a share above 1 is a fast algorithm that
// computes less than the definition of the operator counts.
struct OperatorConstants {
  double convolution = 0.5;
  double convolution3 = 0.9;
  double pointwise = 0.6;
  double linear = 0.7;
  double memory = 0.7;
  double half_convolution = 0.3;  // of the 16-bit rate, every convolution
  double half_linear = 0.5;
  double half_operations = 2e8;  // an operator with so many operations reaches half of its share
  double kernel_seconds = 6e-6;  // to start an operator
  // Of rates above those of a V100, from which the shares are: software reaches less of what is
  // more. Twice the rate is 2 to this power times as fast.
  double beyond = 1;
};

// A training system, as far as its time and memory depend on it.
struct SoftwareConstants {
  std::string name;
  double slowness = 1;                 // times on top of the operators' own
  double collective_efficiency = 0.7;  // share of a link's rate
  double transfer_efficiency = 0.7;
  double overlap = 0.5;        // share of an all-reduce that may run beside the backward pass
  double stale_overlap = 0.5;  // share of the rest that bounded staleness hides
  double update_passes = 7;    // times that an update reads or writes the weights
  double transpose_passes =
      0;                     // times that 16-bit convolutions read or write their tensors besides
  double boundary_rate = 0;  // bytes per second of a boundary between stages on one device
  double loader_rate = 400;  // images per second and core that are decoded
  double straggling = 0.03;  // longer step for each doubling of the devices
  bool round_robin = false;  // replicas take whole mini-batches in turn
  bool half_gradients = false;    // 16-bit jobs reduce 16-bit gradients
  double context_bytes = 0;       // on every device, whatever runs
  double reading_bytes = 0;       // on every device, with real images
  double activation_factor = 1;   // memory for activations, over what the graph needs
  double parameter_copies = 3;    // weights, gradients, momentum; of replicas, buffers to reduce
  double workspace_factor = 1;    // of the largest tensor: gradients on their way
  double algorithm_factor = 0;    // of the largest tensor of a 3x3 convolution: its workspace
  double algorithm_limit = 0;     // bytes that such a workspace has at most
  double head_logit_passes = 30;  // times that a classifier's logits are read or written
  double head_weight_passes = 12;
  double head_sampling = 1;       // times longer for classes picked from all over
  double head_logit_copies = 6;   // kept at once, in float32
  double head_weight_copies = 6;  // beyond centres and momentum
};

// Constants that a fit may change by a common factor, and how uncertain their start is: `spread`
// is the deviation of the factor's logarithm that one expects. `source` says where the start is
// from.
struct FreeConstant {
  std::vector<std::string> names;  // "operators.linear", "oneflow.overlap"
  double spread = 0;
  std::string source;
};

struct CostConstants {
  OperatorConstants operators;
  std::vector<SoftwareConstants> software;
  std::vector<FreeConstant> free;  // of constants to start a fit from
  double median_error = 0;         // of the fit, on rows that it did not see
  double worst_error = 0;

  // Throws InputError naming `flag` for an unknown system.
  const SoftwareConstants& system(std::string_view name, std::string_view flag) const;
};

// One number of the constants by its name, "operators.linear" or "oneflow.overlap".
struct ConstantField {
  std::string name;
  double* value;
};

// All numbers; the pointers live as long as `constants` is not changed in shape.
std::vector<ConstantField> fields_of(CostConstants& constants);

// The constants that come with Millrace, and the guesses from which they were fitted.
CostConstants builtin_constants();
CostConstants unfitted_constants();

// Throws InputError naming `file` and the field at fault.
CostConstants parse_constants(std::string_view text, std::string_view file);
Json describe(const CostConstants& constants);

}  // namespace millrace::planner
