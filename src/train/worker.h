// One device's share of a job.
#pragma once

#include <memory>
#include <optional>

#include "base/rows.h"
#include "parallel/placement.h"
#include "runtime/device_collectives.h"
#include "runtime/session.h"

namespace millrace::train {

// A stage on one of its devices. Owned by the engine, which outlives nothing of it; the members
// are in the order of their lives.
struct Worker {
  parallel::DeviceId id;
  int stage = 0;
  int member = 0;  // among the devices of its stage
  int members = 1;
  backend::Device* device = nullptr;  // the engine's; two workers may share one
  std::optional<compile::Program> training;
  std::optional<compile::Program> evaluation;
  std::unique_ptr<runtime::DeviceCollectives> collectives;  // with several members
  std::optional<comm::Group>
      agreement;  // of the same, where the order of their tasks is left to run time
  std::optional<comm::Group> messages;  // to other stages, of all the workers on this one's device
  std::optional<runtime::Session> session;

  // The program that needs the larger arena.
  const compile::Program& largest() const;
};

// The rows of a micro-batch that an input or result has; all `samples` if it is not divided.
RowRange rows_of_slot(const compile::Slot& slot, int64_t samples);

}  // namespace millrace::train
