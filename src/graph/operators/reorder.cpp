#include "graph/operators/shapes.h"

namespace millrace::graph::reorder {

std::vector<OperatorDefinition> operators() {
  return {{.type = "reorder",
           .infer = same_as_first,
           .changes_layout = true,
           .arithmetic = no_arithmetic}};
}

}  // namespace millrace::graph::reorder
