// MPICH's launcher, spoken to without MPI.
#pragma once

#include <chrono>

namespace millrace::comm {

// Where this process speaks with the daemon of MPICH's launcher (PMI, version 1); -1 if another
// launcher, or none, has started it.
int hydra_descriptor();

// Waits until all ranks have called this and tells the daemon that this one will end in order, as
// MPI_Finalize does in its end. Nothing of MPI may be called behind it. False if the daemon did not
// answer as it should.
bool leave_hydra(int descriptor, std::chrono::milliseconds patience);

}  // namespace millrace::comm
