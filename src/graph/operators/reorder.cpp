#include "graph/operators/shapes.h"

namespace millrace {

std::vector<OperatorDefinition> reorder_operators() {
  return {{.type = "reorder", .infer = same_as_first, .arithmetic = no_arithmetic}};
}

}  // namespace millrace
