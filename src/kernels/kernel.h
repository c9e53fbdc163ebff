// Executable forms of operators.
//
// A Kernel is made at compile time for one operator with fixed shapes, types and layouts, and
// run many times. It owns whatever was prepared (oneDNN primitives) but no tensor memory: it
// says how much workspace it needs and is handed every pointer at each run. `run` allocates
// nothing. One kernel is run by one thread at a time; inside, it uses that thread's team.
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

namespace millrace {

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

class Collectives;

// Work that goes on beside the kernels, see Collectives::post.
class BackgroundWork {
 public:
  virtual ~BackgroundWork() = default;
  virtual void run(Collectives& collectives) = 0;
};

// What a kernel may ask of the other devices that run the same program on their parts. Every
// device calls the same functions in the same order. Implemented by the runtime.
class Collectives {
 public:
  virtual ~Collectives() = default;
  virtual int members() const = 0;
  virtual int member() const = 0;

  // Replaces the values by their sum over the members.
  virtual void all_reduce(std::span<float> values) = 0;

  // `whole` is a row of blocks that are divided over the members as part_begin says. Sums it over
  // the members and leaves this one's blocks in `part`.
  virtual void reduce_scatter(std::span<const float> whole, std::span<float> part,
                              int64_t block) = 0;

  // The same two with values that travel as `wire`, f32 or a 16-bit type: every term is rounded to
  // it, the terms are added in float32, and the sum is rounded once more.
  virtual void all_reduce(std::span<float> values, DataType wire) = 0;
  virtual void reduce_scatter(std::span<const float> whole, std::span<float> part, int64_t block,
                              DataType wire) = 0;

  // The reverse of reduce_scatter: collects every member's blocks, of any type, into `whole`.
  virtual void all_gather(std::span<const std::byte> part, std::span<std::byte> whole,
                          int64_t block_bytes) = 0;

  // Runs `work` beside the kernels that follow, after what was posted before, with collectives of
  // its own. It must live until `wait` has been called with the same ticket.
  virtual void post(int ticket, BackgroundWork& work) = 0;
  virtual void wait(int ticket) = 0;
};

struct KernelArguments {
  std::span<std::byte* const> inputs;  // in the operator's order
  std::span<std::byte* const> outputs;
  std::byte* workspace = nullptr;
  const StepState* step = nullptr;
  Collectives* collectives = nullptr;  // null on a device alone

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
};

// One tensor of a request.
struct TensorSpec {
  TensorType type;
  Layout layout;

  int64_t elements() const { return type.elements(); }
  // With padding of blocked axes: what flat loops go over.
  int64_t physical_elements() const { return layout.physical_elements(type.shape); }
  int64_t bytes() const { return physical_elements() * size_of(type.dtype); }
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
  const Operator& op;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  const KernelOptions& options;
};

// Layouts that the kernel of an operator wants; one entry per input and output.
struct LayoutWish {
  std::vector<Layout> inputs;
  std::vector<Layout> outputs;
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

}  // namespace millrace
