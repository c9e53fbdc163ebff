// One device's share of a job.
#pragma once

#include <memory>
#include <optional>

#include "base/rows.h"
#include "parallel/placement.h"
#include "runtime/device_collectives.h"
#include "runtime/session.h"

namespace millrace {

// A stage on one of its devices. Owned by the engine, which outlives nothing of it; the members
// are in the order of their lives.
struct Worker {
  DeviceId id;
  int stage = 0;
  int member = 0;  // among the devices of its stage
  int members = 1;
  Device* device = nullptr;  // the engine's; two workers may share one
  std::optional<Program> training;
  std::optional<Program> evaluation;
  std::unique_ptr<DeviceCollectives> collectives;  // with several members
  std::optional<Group> messages;  // to other stages, of all the workers on this one's device
  std::optional<Session> session;

  // The program that needs the larger arena.
  const Program& largest() const;
};

// A result of the whole job, which is "<name>.total" where several devices have a share of it.
const Slot* find_result(const Program& program, std::string_view name);

// The rows of a micro-batch that an input or result has; all `samples` if it is not divided.
RowRange rows_of_slot(const Slot& slot, int64_t samples);

}  // namespace millrace
