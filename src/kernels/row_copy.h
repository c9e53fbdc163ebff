// Rows of a tensor on their way to or from a plain buffer.
#pragma once

#include <memory>
#include <string>

#include "base/rows.h"
#include "kernels/kernel.h"

namespace millrace::kernels {

// Made once for a tensor and some of its rows, counted from the tensor's own first. The buffer
// holds them as `wire`: the tensor's own type, or 16 bits for one of float32, rounded on the way
// out and widened on the way in. The tensor's first byte is the input on the way out and the output
// on the way in; the workspace holds one float32 row if the type changes. Throws std::logic_error,
// naming the tensor, where that cannot be done.
struct RowCopyRequest {
  std::string name;
  TensorSpec tensor;
  RowRange rows;
  bool out = false;  // of the tensor
  graph::DataType wire = graph::DataType::f32;
};

std::unique_ptr<Kernel> make_row_copy(const RowCopyRequest& request);

}  // namespace millrace::kernels
