// What all_reduce_bench compares with; one source file with MPI and one without.
#pragma once

#include <vector>

namespace millrace {

// MPI_Allreduce over all ranks, in place.
void plain_mpi_all_reduce(std::vector<float>& data);

}  // namespace millrace
