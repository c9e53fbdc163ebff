// What the test programs that run as several ranks share.
#pragma once

#include "comm/mpi_group.h"

namespace millrace::comm {

// The session of this program, while the tests run.
MpiSession& test_session();

// Runs the tests as one of `ranks` ranks; rank 0 prints. The status is the same for all.
int run_mpi_tests(int argc, char** argv, int ranks);

}  // namespace millrace::comm
