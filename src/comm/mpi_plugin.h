// Finding and opening the plug-in of an MPI.
#pragma once

#include <filesystem>
#include <memory>

#include "comm/launcher.h"
#include "comm/mpi_module.h"

namespace millrace::comm {

// Plug-ins lie beside the program, in ../lib/millrace as seen from it, or in the directory that the
// variable MILLRACE_PLUGINS names, which comes first.
bool has_mpi_plugin(MpiFamily family);

// Opens the plug-in of a family; it stays open until the process ends. Throws InputError if it is
// missing, cannot be opened (the MPI itself is not installed) or belongs to another version.
std::unique_ptr<MpiModule> open_mpi_plugin(MpiFamily family);

}  // namespace millrace::comm
