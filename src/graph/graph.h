// What is computed: operators and tensors, without devices or memory.
//
// A Graph owns its tensors and operators and hands out small integer ids that stay valid while
// passes insert, remove and reorder. `order()` is the execution order; an operator that is not
// in it has been removed. Single-threaded.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/attributes.h"
#include "graph/layout.h"
#include "graph/types.h"

namespace millrace::graph {

using TensorId = int32_t;
using OperatorId = int32_t;
inline constexpr int32_t kNone = -1;

// Why a tensor exists; decides its line in the memory break-down and its lifetime.
enum class Role : uint8_t {
  input,            // written by the caller before a step
  parameter,        // trained; lives across steps
  buffer,           // lives across steps, not trained (running statistics)
  activation,       // made and used within a step (gradients of activations too)
  gradient,         // gradient of a parameter
  optimizer_state,  // lives across steps
  accumulator,      // sum of gradients over the micro-batches of a step
  communication,    // staging for what goes to other devices
};

std::string_view name_of(Role role);
bool is_persistent(Role role);

enum class Phase : uint8_t { forward, backward, update };

std::string_view name_of(Phase phase);

// How a parameter or buffer starts out. Normal and uniform draw from a stream named after the
// tensor, so a value depends on (seed, name, element) alone.
struct Initializer {
  enum class Kind : uint8_t { constant, normal, uniform };
  Kind kind = Kind::constant;
  float first = 0;   // the constant, the mean, or the lower bound
  float second = 0;  // the standard deviation or the upper bound
};

// Where a device's tensor lies in the job's: it is the part of that many rows along `axis` that
// starts at `begin`, out of `whole` rows. Without an axis it is the job's whole tensor.
struct Slice {
  int axis = kNone;
  int64_t begin = 0;
  int64_t whole = 0;

  bool operator==(const Slice&) const = default;
};

// Only this part of the tensor's memory is kept, its elements in storage order divided over
// `count` devices as part_begin says: optimizer state that is shared out.
struct Part {
  int index = 0;
  int count = 1;

  bool operator==(const Part&) const = default;
};

struct Tensor {
  std::string name;
  TensorType type;
  Role role = Role::activation;
  Layout layout;
  Initializer initializer;
  OperatorId producer = kNone;
  // Set by the in-place pass: this tensor lies in the memory of that one.
  TensorId storage = kNone;
  Slice slice = {};
  Part part = {};
  double rate = 1;  // of a parameter: times the learning rate
};

struct Operator {
  std::string type;
  std::string name;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  Attributes attributes;
  Phase phase = Phase::forward;
};

class Graph {
 public:
  TensorId add_tensor(Tensor tensor);

  // Adds an operator at the end of the order; infers and creates its outputs, named
  // "<name>" or "<name>:<i>". Throws InputError where shapes do not fit, naming the operator.
  OperatorId add_operator(std::string_view type, std::string name, std::vector<TensorId> inputs,
                          Attributes attributes = {}, Phase phase = Phase::forward);

  // As add_operator, and returns the first output.
  TensorId apply(std::string_view type, std::string name, std::vector<TensorId> inputs,
                 Attributes attributes = {}, Phase phase = Phase::forward);

  Tensor& tensor(TensorId id) { return tensors_.at(static_cast<size_t>(id)); }
  const Tensor& tensor(TensorId id) const { return tensors_.at(static_cast<size_t>(id)); }
  Operator& op(OperatorId id) { return operators_.at(static_cast<size_t>(id)); }
  const Operator& op(OperatorId id) const { return operators_.at(static_cast<size_t>(id)); }

  TensorId tensor_count() const { return static_cast<TensorId>(tensors_.size()); }
  OperatorId operator_count() const { return static_cast<OperatorId>(operators_.size()); }

  const std::vector<OperatorId>& order() const { return order_; }
  void set_order(std::vector<OperatorId> order) { order_ = std::move(order); }

  // The tensor of that name, or kNone.
  TensorId find_tensor(std::string_view name) const;

  // Operators in order that read each tensor, indexed by TensorId.
  std::vector<std::vector<OperatorId>> consumers() const;

  // Tensors that the caller reads after a step (loss, metrics, logits); kept to the end.
  const std::vector<TensorId>& results() const { return results_; }
  void add_result(TensorId id) { results_.push_back(id); }
  void set_results(std::vector<TensorId> results) { results_ = std::move(results); }

  // Re-runs shape inference and checks that every input exists before it is used, every output
  // has one producer, and persistent tensors are not produced. Throws std::logic_error naming
  // the first fault: a pass that breaks the graph is a bug.
  void validate() const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<Operator> operators_;
  std::vector<OperatorId> order_;
  std::vector<TensorId> results_;
};

// One line per operator in order, with types and layouts.
std::string to_text(const Graph& graph);

// A Graphviz digraph.
std::string to_graphviz(const Graph& graph);

}  // namespace millrace::graph
