#include "parallel/boxing.h"

namespace millrace {

Sharding gradient_of(const Sharding& sharding) {
  switch (sharding.kind) {
    case Sharding::Kind::split:
      return sharding;
    case Sharding::Kind::broadcast:
      return partial();
    case Sharding::Kind::partial:
      return broadcast();
  }
  return {};
}

double boxing_bytes(const Sharding& from, const Sharding& to, double bytes, int members) {
  const bool stays = from == to || from.kind == Sharding::Kind::broadcast ||
                     (from.kind == Sharding::Kind::split && to.kind == Sharding::Kind::partial);
  if (stays) return 0;
  const double once = bytes * (members - 1) / members;
  const bool all_reduced = from.kind == Sharding::Kind::partial && to == broadcast();
  return all_reduced ? 2 * once : once;
}

double boxing_bytes_both_ways(const Sharding& from, const Sharding& to, double bytes, int members,
                              bool has_gradient) {
  const double there = boxing_bytes(from, to, bytes, members);
  if (!has_gradient) return there;
  return there + boxing_bytes(gradient_of(to), gradient_of(from), bytes, members);
}

}  // namespace millrace
