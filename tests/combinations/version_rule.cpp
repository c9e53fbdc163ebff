#include "version_rule.h"

#include <algorithm>

namespace millrace::combinations {

bool VersionRule::stale() const {
  return plan_.stage_count() > 1 && !parallel::is_synchronous(plan_.schedule);
}

int VersionRule::replicas(int stage) const {
  return plan_.round_robin ? plan_.stages[static_cast<size_t>(stage)].size() : 1;
}

int VersionRule::replica(int stage, int64_t micro_batch) const {
  return static_cast<int>(micro_batch % replicas(stage));
}

// PipeDream: forwards of a replica before its first backward, one for each device behind it.
int64_t VersionRule::warm_up(int stage) const {
  int64_t devices = 0;
  for (int s = stage; s < plan_.stage_count(); ++s) devices += replicas(s);
  return (devices - 1) / replicas(stage);
}

int64_t VersionRule::version(int stage, int64_t micro_batch) const {
  const int64_t step = micro_batch / plan_.micro_batches;
  if (!stale()) return step;
  if (plan_.schedule == parallel::ScheduleKind::two_bw) return std::max<int64_t>(0, step - 1);
  if (newest_.contains(stage)) return update(stage, micro_batch);
  // A forward comes behind so many backwards of its replica; so many of each make an update.
  const int64_t behind = micro_batch / replicas(stage) - warm_up(stage);
  return std::max<int64_t>(0, behind) / plan_.micro_batches;
}

int64_t VersionRule::update(int stage, int64_t micro_batch) const {
  if (!stale() || plan_.schedule == parallel::ScheduleKind::two_bw)
    return micro_batch / plan_.micro_batches;
  return micro_batch / (plan_.micro_batches * replicas(stage));
}

}  // namespace millrace::combinations
