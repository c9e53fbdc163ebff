// What an MPI launcher told this process, readable before and without MPI.
#pragma once

namespace millrace {

// The number of processes that mpirun or mpiexec started for this job; 1 without a launcher.
int launched_ranks();

}  // namespace millrace
