#include "simulate/collective.h"

namespace millrace::simulate {

CollectiveWork ring_work(Collective kind, int members, double bytes) {
  const int around = members - 1;
  const int rounds = kind == Collective::all_reduce ? 2 : 1;
  return {rounds * bytes * around / members, rounds * around};
}

CollectiveWork tree_work(int members, double bytes) {
  int levels = 0;
  while ((int64_t{1} << levels) < members) ++levels;
  return {2 * bytes, 2 * levels};
}

}  // namespace millrace::simulate
