#include "graph/sharding.h"

namespace millrace::graph {

std::string to_string(const Sharding& sharding) {
  switch (sharding.kind) {
    case Sharding::Kind::broadcast:
      return "broadcast";
    case Sharding::Kind::split:
      return "split(" + std::to_string(sharding.axis) + ")";
    case Sharding::Kind::partial:
      return "partial";
  }
  return {};
}

}  // namespace millrace::graph
