# The program links no MPI: libmillrace_openmpi.so and libmillrace_mpich.so join processes and are
# opened when a launcher of that family started the program. MILLRACE_MPI says which are built:
# "auto" those whose compiler wrapper is installed (Debian has both side by side), "off" none, or a
# list of families that must be there.
set(MILLRACE_MPI "auto" CACHE STRING "auto, off, or a list of openmpi and mpich")

find_program(MILLRACE_OPENMPI_WRAPPER mpicxx.openmpi)
find_program(MILLRACE_MPICH_WRAPPER mpicxx.mpich)
find_program(MILLRACE_OPENMPI_LAUNCHER mpirun.openmpi)
find_program(MILLRACE_MPICH_LAUNCHER mpiexec.mpich)
set(millrace_launcher_openmpi ${MILLRACE_OPENMPI_LAUNCHER} --allow-run-as-root --oversubscribe)
set(millrace_launcher_mpich ${MILLRACE_MPICH_LAUNCHER})

# The MPIs to build for.
set(millrace_mpi_families "")
foreach(family openmpi mpich)
  string(TOUPPER ${family} upper)
  if(MILLRACE_MPI STREQUAL "off" OR NOT (MILLRACE_MPI STREQUAL "auto" OR family IN_LIST MILLRACE_MPI))
    continue()
  endif()
  if(MILLRACE_${upper}_WRAPPER)
    list(APPEND millrace_mpi_families ${family})
  elseif(NOT MILLRACE_MPI STREQUAL "auto")
    message(FATAL_ERROR "MILLRACE_MPI names ${family}, but mpicxx.${family} is not installed.")
  endif()
endforeach()
if(NOT MILLRACE_MPI MATCHES "^(auto|off|openmpi|mpich)(;(openmpi|mpich))*$")
  message(FATAL_ERROR "MILLRACE_MPI is ${MILLRACE_MPI}; it must be auto, off, or a list of openmpi and mpich.")
endif()

# millrace_mpi_FAMILY: headers and library of one MPI, as its compiler wrapper tells them.
function(millrace_find_mpi family wrapper)
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE
                  COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  add_library(millrace_mpi_${family} INTERFACE)
  foreach(flag ${flags})
    if(flag MATCHES "^-I(.+)")
      target_include_directories(millrace_mpi_${family} SYSTEM INTERFACE ${CMAKE_MATCH_1})
    elseif(flag MATCHES "^-L(.+)")
      list(APPEND directories ${CMAKE_MATCH_1})
    elseif(flag MATCHES "^-l(mpi|mpich)$")
      set(name ${CMAKE_MATCH_1})
    endif()
  endforeach()
  find_library(MILLRACE_MPI_LIBRARY_${family} ${name} HINTS ${directories} REQUIRED)
  target_link_libraries(millrace_mpi_${family} INTERFACE ${MILLRACE_MPI_LIBRARY_${family}})
  # The C interface is all that is used.
  target_compile_definitions(millrace_mpi_${family} INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
endfunction()

foreach(family ${millrace_mpi_families})
  string(TOUPPER ${family} upper)
  millrace_find_mpi(${family} ${MILLRACE_${upper}_WRAPPER})
endforeach()
message(STATUS "MPI plug-ins: ${millrace_mpi_families}")
