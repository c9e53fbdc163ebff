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

// A member's part of an operator's first input: `size` of the `whole` rows along `axis`, from
// `begin`.
struct InputPart {
  int axis;
  int64_t begin;
  int64_t size;
  int64_t whole;
};

struct OperatorDefinition {
  std::string_view type;

  // Types of the outputs. Throws InputError with a sentence about the shapes.
  std::vector<TensorType> (*infer)(const Inference&);

  // Null for operators without a gradient (backward and update operators, metrics).
  void (*differentiate)(Differentiation&) = nullptr;

  // What it takes part in making, where a gradient rule adds it.
  enum class Gradient : uint8_t { none, of_inputs, of_weights };
  Gradient gradient = Gradient::none;

  // The weights of which it makes a weighted sum, as its second input, or a gradient of that sum:
  // used once for a sample, or at every place of an image.
  enum class Weights : uint8_t { none, dense, sliding };
  Weights weights = Weights::none;

  // Belongs to a margin head. One that takes a rule updates the centres, as soon as the optimizer
  // has completed it (passes/head_updates.h).
  bool is_head = false;
  bool takes_rule = false;

  // Draws the classes that a step uses, by its labels: those of all micro-batches, which it then
  // takes as its last input.
  bool samples_classes = false;

  // Its first output is a mean over samples: over the number in the attribute "samples", if given.
  bool averages_samples = false;

  // Makes what is told of a step beside the loss, and nothing that a gradient passes through.
  bool is_metric = false;

  // Normalises with statistics of a batch, and keeps running ones for evaluations (attribute
  // "inference").
  bool has_running_statistics = false;

  // The type that does the same without other devices in an evaluation, which lacks this input and
  // what only that needs.
  struct Alone {
    std::string_view type = {};
    size_t exchanged_input = 0;
  };
  Alone alone = {};

  // Changes training alone: an evaluation has the input in place of the output.
  bool only_trains = false;

  // The values of an output are those of the input in another layout.
  bool changes_layout = false;

  // Behind it all that devices agree on before any weight changes is known.
  bool precedes_agreement = false;

  // Looks whether gradients of parameters, named in the attribute "parameters", are finite.
  bool looks_for_overflow = false;

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

  // In a job that computes in 16 bits: it never does, does, or does where an input has them; in the
  // latter case perhaps for images alone, as rows are small and want every bit.
  enum class Halves : uint8_t { never, computes, follows, follows_images };
  Halves halves = Halves::never;

  // All inputs are images or rows, not the first alone.
  bool joins_inputs = false;

  // Can make float32 of inputs in 16 bits: attribute "to".
  bool can_widen = false;

  // Fusion. An operator that can end in a ReLU (attribute "relu") takes over the one behind it, one
  // that can begin with a ReLU (the same) the one before it, and one that can add a residual, its
  // last input (attribute "residual"), the sum behind it.
  bool is_relu = false;
  bool is_sum = false;  // of two
  bool can_end_in_relu = false;
  bool can_begin_with_relu = false;
  bool can_add_residual = false;

  // The type that normalises with running statistics, too, where it alone is read by such a norm;
  // its inputs are this one's, then the norm's but for the first.
  std::string_view normalised = {};

  // Bends the values of a norm in front of it, which may do that itself (attribute "bend").
  bool is_bend = false;
  bool can_bend = false;

  // The type that does the same to the sum of two tensors, in place of the first input.
  std::string_view of_sum = {};

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

  // What an operator on a part of its first input says otherwise. Null: nothing.
  void (*take_part)(Attributes&, const InputPart&) = nullptr;

  // Divided in some ways several operators stand for it on each device (parallel/expansions.h):
  // with its classes divided, or with its samples where they are normalised together.
  enum class Expansion : uint8_t { none, loss_of_classes, rank_in_classes, shared_statistics };
  Expansion expansion = Expansion::none;

  // Floating-point operations, multiply and add counted apart; null counts one per output
  // element.
  double (*arithmetic)(const Inference&) = nullptr;
};

// The definition of a type; throws std::logic_error for an unknown one.
const OperatorDefinition& definition_of(std::string_view type);
inline const OperatorDefinition& definition_of(const Operator& op) {
  return definition_of(op.type);
}

// All definitions, in the order of operators.def.
const std::vector<OperatorDefinition>& all_definitions();

}  // namespace millrace::graph
