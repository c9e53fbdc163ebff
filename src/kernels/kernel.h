// Executable forms of operators.
//
// A Kernel is made at compile time for one operator with fixed shapes, types and layouts, and
// run many times. It owns whatever was prepared (oneDNN primitives) but no tensor memory: it
// says how much workspace it needs and is handed every pointer at each run. `run` allocates
// nothing. One kernel is run by one thread at a time; inside, it uses that thread's team. It
// never talks to other devices: of an operator that does, it is what is left to do on this one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "kernels/convolution_algorithm.h"

namespace millrace::kernels {

// Values that change from step to step without changing the program.
struct StepState {
  uint64_t seed = 0;
  int64_t step = 0;  // counts optimizer steps from 0
  float learning_rate = 0;
  int64_t micro_batch = 0;   // within the step
  int64_t first_sample = 0;  // of the step's batch that the program sees as its row 0
  float loss_scale = 1;      // gradients are multiplied by it from the loss to the update
  int64_t skipped = 0;       // steps before this one that changed no weights

  // Of the optimizer, before this step.
  int64_t updates() const { return step - skipped; }
};

// What an operand's address stands for, for backends that check who touches what.
struct Extent {
  static constexpr int kAnyone = -1;

  int64_t bytes = 0;
  int buffer = kAnyone;  // of its program; tensors that share memory on purpose are of one buffer
  bool written = false;  // though it is an input
};

struct KernelArguments {
  std::span<std::byte* const> inputs;  // in the operator's order
  std::span<std::byte* const> outputs;
  std::byte* workspace = nullptr;
  const StepState* step = nullptr;  // null for kernels that do not look

  template <typename T>
  T* input(size_t i) const {
    return reinterpret_cast<T*>(inputs[i]);
  }
  template <typename T>
  T* output(size_t i) const {
    return reinterpret_cast<T*>(outputs[i]);
  }
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual uint64_t workspace_bytes() const { return 0; }
  virtual void run(const KernelArguments& arguments) = 0;
  // Makes current what `run` has put off (rows that a step did not need); called between steps,
  // with the arguments of `run` but for the step, before anybody else reads the state.
  virtual void settle(const KernelArguments&) {}
};

// One tensor of a request.
struct TensorSpec {
  graph::TensorType type;
  graph::Layout layout;

  int64_t elements() const { return type.elements(); }
  // With padding of blocked axes: what flat loops go over.
  int64_t physical_elements() const { return layout.physical_elements(type.shape); }
  int64_t bytes() const { return physical_elements() * graph::size_of(type.dtype); }
};

class ConvolutionChoices;

// Choices that hold for a whole program. Those of convolutions are borrowed and may be null (then
// `automatic` means `direct`).
struct KernelOptions {
  ConvolutionAlgorithm convolution = ConvolutionAlgorithm::automatic;
  ConvolutionChoices* choices = nullptr;
  int threads = 1;
  int64_t workspace_limit = 0;  // bytes a convolution may use beside its tensors; 0: any
  bool reference_only = false;  // the naive implementations, for comparison
};

struct KernelRequest {
  const graph::Operator& op;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  const KernelOptions& options;
};

// Layouts that the kernel of an operator wants; one entry per input and output.
struct LayoutWish {
  std::vector<graph::Layout> inputs;
  std::vector<graph::Layout> outputs;
};

// One way to run an operator type. `create` returns null when it cannot serve the request and
// says why in `refusal`. One that does not take tensors of 16 bits is never asked for them: it
// serves such requests with float32 copies in the workspace.
struct KernelImplementation {
  std::string_view name;
  std::unique_ptr<Kernel> (*create)(const KernelRequest& request, std::string* refusal);
  bool takes_halves = false;
};

// All ways to run an operator type, best first, the naive reference last.
struct KernelFamily {
  std::string_view type;
  std::vector<KernelImplementation> implementations;

  // The layouts the best implementation wants, given what the inputs have now (outputs in the
  // request carry types only). Null: everything plain.
  LayoutWish (*layouts)(const KernelRequest& request) = nullptr;
};

const KernelFamily& kernels_of(std::string_view type);

// The first implementation that serves the request; throws InputError naming the operator and
// each refusal if none does. `chosen` receives its name.
std::unique_ptr<Kernel> make_kernel(const KernelRequest& request, std::string* chosen = nullptr);

// What the layout pass asks.
LayoutWish layouts_of(const KernelRequest& request);

// Copies a tensor from one layout to another; the types must be equal. For moving data in and
// out of a program, not for use while it runs.
void copy_between_layouts(const TensorSpec& from, const std::byte* source, const TensorSpec& to,
                          std::byte* target);

}  // namespace millrace::kernels
