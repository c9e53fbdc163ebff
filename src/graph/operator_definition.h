// What the compiler knows of an operator type. Adding one: a definition in graph/operators/,
// its kernels in kernels/, one line in graph/operators.def, a test.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/sharding.h"

namespace millrace::graph {

// The inputs of shape inference.
struct Inference {
  const Operator& op;
  std::vector<TensorType> inputs;

  const Shape& shape(size_t input) const { return inputs.at(input).shape; }
};

// Handed to an operator's gradient rule: read the forward operator, add backward operators,
// set the gradients of its inputs. Operators added through `apply` are in the backward phase
// and named after the forward operator.
class Differentiation {
 public:
  virtual ~Differentiation() = default;

  virtual Graph& graph() = 0;
  virtual const Operator& op() const = 0;

  // Gradient that arrived for an output; kNone if nothing depends on it.
  virtual TensorId output_gradient(size_t output) const = 0;

  // Whether anyone needs the gradient of this input (a parameter lies behind it).
  virtual bool needs_gradient(size_t input) const = 0;

  virtual void set_input_gradient(size_t input, TensorId gradient) = 0;

  // Adds a backward operator "<forward name>/<type>" and returns its id.
  virtual OperatorId apply(std::string_view type, std::vector<TensorId> inputs,
                           Attributes attributes = {}) = 0;

  TensorId input(size_t i) const { return op().inputs.at(i); }
  TensorId output(size_t i) const { return op().outputs.at(i); }
  TensorId result(OperatorId added, size_t i = 0) { return graph().op(added).outputs.at(i); }
};

struct OperatorDefinition {
  std::string_view type;

  // Types of the outputs. Throws InputError with a sentence about the shapes.
  std::vector<TensorType> (*infer)(const Inference&);

  // Null for operators without a gradient (backward and update operators, metrics).
  void (*differentiate)(Differentiation&) = nullptr;

  // Inputs that the operator also writes (running statistics, weights in an update).
  std::vector<int> mutated_inputs = {};

  // Pairs (output, input): the output may take over the memory of the input if nobody reads
  // the input later. Only pairs of the same type and layout are used.
  struct InPlace {
    int output;
    int input;
  };
  std::vector<InPlace> in_place = {};

  // The output is the input's memory seen with another shape; no kernel runs.
  bool is_view = false;

  // Cheap to run again in the backward pass instead of keeping its output. The clone has the
  // type `recompute_type` (empty: the same), its inputs are chosen by `recompute_inputs`
  // (null: the same), and its first output replaces the forward operator's first output.
  bool cheap = false;
  std::string_view recompute_type = {};
  std::vector<TensorId> (*recompute_inputs)(const Operator&) = nullptr;

  // Not cheap, but may run again as it is: it makes the same outputs from the same inputs, writes
  // nothing else and asks nothing of other devices.
  bool repeatable = false;

  // Whatever the precision, float32 it is for what the operator makes and its backward pass reads:
  // losses and heads.
  bool exact = false;

  // Inputs that may be in 16 bits although the operator computes in float32: tensors that the
  // forward pass has left. Where the output would take its type from such an input, the flag
  // `wide` says that it is float32.
  std::vector<int> stored_inputs = {};

  // What it asks of the other devices of its stage. sum, scatter, gather: as all_reduce,
  // reduce_scatter and all_gather do; sum_first: its first input's first element is summed behind
  // its kernel; start_sums, start_gather: the same beside what follows; wait: for a start.
  enum class Exchange : uint8_t {
    none,
    sum,
    scatter,
    gather,
    sum_first,
    start_sums,
    start_gather,
    wait
  };
  Exchange exchange = Exchange::none;

  // The ways in which the operator can run on several devices, each on its part of the tensors;
  // the inference has the whole shapes. Null: only on whole tensors, the same on every device.
  std::vector<ShardingSignature> (*shardings)(const Inference&) = nullptr;

  // Floating-point operations, multiply and add counted apart; null counts one per output
  // element.
  double (*arithmetic)(const Inference&) = nullptr;
};

// The definition of a type; throws std::logic_error for an unknown one.
const OperatorDefinition& definition_of(std::string_view type);

// All definitions, in the order of operators.def.
const std::vector<OperatorDefinition>& all_definitions();

}  // namespace millrace::graph
