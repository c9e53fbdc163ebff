// What an MPI launcher told this process, readable before and without MPI.
#pragma once

#include <optional>

namespace millrace::comm {

// The two kinds of MPI that processes are joined by; each has a plug-in.
enum class MpiFamily : unsigned char { openmpi, mpich };
const char* name_of(MpiFamily family);  // "openmpi"

// Whether the launcher bound this process to some of its host's cores.
enum class Binding : unsigned char {
  none,
  by_default,  // nobody asked for it: Open MPI binds each of two ranks to a single core
  as_asked,
};

// One process among those that mpirun, mpiexec or srun started for a job, and its place among those
// on the same host. Without a launcher, or where it does not say, a process is alone.
struct LaunchPlace {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;
  int local_ranks = 1;
  Binding binding = Binding::none;
};

// Understands Open MPI, MPICH and Slurm's srun. Values that make no sense count as not said.
LaunchPlace launch_place();

// The MPI that the launcher of this process speaks: that of mpirun or mpiexec, Open MPI for
// `srun --mpi=pmix`, MPICH for `srun --mpi=pmi2`; none without a launcher. Throws InputError for
// a launcher that started several processes and offers none of these.
std::optional<MpiFamily> launcher_family();

// The number of processes of this job; 1 without a launcher.
int launched_ranks();

}  // namespace millrace::comm
