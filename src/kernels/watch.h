// Looks at what another kernel wrote.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

// The first tensor at fault; the message is a clause: "layer 'conv1' (convolution, forward) …".
class Suspicious : public JobError {
 public:
  explicit Suspicious(const std::string& clause, std::optional<int64_t> step = {})
      : JobError(clause), step_(step) {}

  // Of the job, where several may be under way.
  std::optional<int64_t> step() const { return step_; }

 private:
  std::optional<int64_t> step_;
};

// A tensor that a kernel writes: an output, or an input that it changes.
struct WrittenTensor {
  std::string name;
  graph::DataType dtype = graph::DataType::f32;
  int64_t elements = 0;  // with the padding of its layout
  bool is_output = true;
  size_t index = 0;  // among the outputs or inputs
  graph::Role role = graph::Role::activation;
};

// Runs behind the kernel with the same operands. Throws Suspicious, whose clause begins with
// `place`, for values that are not finite, and with `alive` for a tensor that has the same value
// everywhere.
std::unique_ptr<Kernel> make_watch(std::string place, std::vector<WrittenTensor> written,
                                   bool alive);

int64_t count_not_finite(graph::DataType type, const std::byte* values, int64_t count);

}  // namespace millrace::kernels
