#include "parallel/boxing.h"

namespace millrace::parallel {

graph::Sharding gradient_of(const graph::Sharding& sharding) {
  switch (sharding.kind) {
    case graph::Sharding::Kind::split:
      return sharding;
    case graph::Sharding::Kind::broadcast:
      return graph::partial();
    case graph::Sharding::Kind::partial:
      return graph::broadcast();
  }
  return {};
}

double boxing_bytes(const graph::Sharding& from, const graph::Sharding& to, double bytes,
                    int members) {
  const bool stays =
      from == to || from.kind == graph::Sharding::Kind::broadcast ||
      (from.kind == graph::Sharding::Kind::split && to.kind == graph::Sharding::Kind::partial);
  if (stays) return 0;
  const double once = bytes * (members - 1) / members;
  const bool all_reduced = from.kind == graph::Sharding::Kind::partial && to == graph::broadcast();
  return all_reduced ? 2 * once : once;
}

double boxing_bytes_both_ways(const graph::Sharding& from, const graph::Sharding& to, double bytes,
                              int members, bool has_gradient) {
  const double there = boxing_bytes(from, to, bytes, members);
  if (!has_gradient) return there;
  return there + boxing_bytes(gradient_of(to), gradient_of(from), bytes, members);
}

}  // namespace millrace::parallel
