// The beats of ranks over MPI messages.
#pragma once

#include <memory>

#include "comm/mpi_module.h"

namespace millrace::comm {

// As MpiModule::make_beats.
std::unique_ptr<Beats> make_mpi_beats(const MpiProcesses& processes, HeartbeatOptions options,
                                      MpiModule::OnFailure on_failure);

}  // namespace millrace::comm
