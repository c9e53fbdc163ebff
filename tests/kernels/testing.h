// What the kernel tests share: values of tensors, kernels run on them, graphs interpreted.
//
// Values are logical elements in row-major order as doubles, which hold every element type
// exactly; layouts exist only while a kernel runs. Outputs start out as NaN (or 255), so an
// element that a kernel forgets is seen.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "kernels/kernel.h"

namespace millrace::testing {

using Values = std::vector<double>;

// Uniform in [-1, 1), or in [0.5, 1.5) if positive.
Values random_values(const graph::TensorType& type, uint64_t seed, bool positive = false);

// Distinct multiples of a spacing, none nearer to 0 than half of it, shuffled over [-1, 1]: no
// ties and no kinks for a difference quotient to fall into.
Values spaced_values(const graph::TensorType& type, uint64_t seed);

// Labels below `classes`.
Values random_labels(const graph::TensorType& type, int64_t classes, uint64_t seed);

// Memory aligned as an arena's is.
struct Storage {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  explicit Storage(uint64_t size) : lines(size / sizeof(Line) + 1) {}
  std::byte* data() { return lines.data()->bytes; }
  const std::byte* data() const { return lines.data()->bytes; }

  std::vector<Line> lines;
};

// Elements put where the layout wants them; padding is zero.
Storage pack(const Values& values, const kernels::TensorSpec& spec);
Values unpack(const Storage& storage, const kernels::TensorSpec& spec);
Storage unwritten(const kernels::TensorSpec& spec);

struct KernelRun {
  std::vector<Values> inputs;  // afterwards: some kernels write them
  std::vector<Values> outputs;
  bool padding_is_zero = true;  // of float outputs
};

inline constexpr kernels::StepState kStep = {.seed = 7, .step = 3, .learning_rate = 0.05f};

// Runs a kernel; with `in_place` (output, input) that output lies in that input's memory.
KernelRun run_kernel(kernels::Kernel& kernel, const kernels::KernelRequest& request,
                     const std::vector<Values>& inputs, std::pair<int, int> in_place = {-1, -1},
                     const kernels::StepState& step = kStep);

// An operator by itself, its outputs inferred.
struct SingleOperator {
  SingleOperator(std::string type, graph::Attributes attributes,
                 std::vector<graph::TensorType> input_types);

  // With everything plain, or with `layout` for tensors of rank 4.
  kernels::KernelRequest request(const kernels::KernelOptions& options,
                                 const graph::Layout& layout = {}) const;

  graph::Operator op;
  std::vector<graph::TensorType> inputs;
  std::vector<graph::TensorType> outputs;
};

// The layouts that the operator's family asks for when inputs of rank 4 come in `layout`.
kernels::KernelRequest wished(const SingleOperator& single, const kernels::KernelOptions& options,
                              const graph::Layout& layout);

// Runs the operator's reference on plain tensors.
KernelRun run_reference(const SingleOperator& single, const std::vector<Values>& inputs,
                        const kernels::StepState& step = kStep);

// What an operator that exchanges makes of its input, which has this shape.
using ExchangeFunction =
    std::function<Values(const graph::Operator&, const graph::Shape&, const Values&)>;

// Runs every operator of a graph in order, images between kernels in `layout` where they take
// it; `exchange`, if given, those that exchange. Returns the values of all tensors.
std::map<graph::TensorId, Values> interpret(const graph::Graph& graph,
                                            std::map<graph::TensorId, Values> values,
                                            const kernels::KernelOptions& options,
                                            const graph::Layout& layout = {},
                                            const ExchangeFunction& exchange = {});

// The first element further away than tolerance * (1 + |expected|), in words; empty if none is.
std::string difference(const Values& actual, const Values& expected, double tolerance);

}  // namespace millrace::testing
