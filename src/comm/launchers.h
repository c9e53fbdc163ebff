// The launchers above a rank, and their end when a job has failed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace millrace::comm {

// A process as it was found; another one that has taken over its number started at another time.
struct ProcessMark {
  pid_t number = 0;
  std::string start;  // in clock ticks since the system's start

  bool is_alive() const;
};

// A process of this machine as /proc shows it.
struct ProcessFacts {
  pid_t parent = 0;
  char state = '?';  // R, S, D, T for stopped, Z
  std::string name;  // of its program, at most 15 letters
  std::string start;
};

// /proc/NUMBER/NAME; empty if there is no such process, or none any more. Never throws: streams of
// the standard library do, when a process ends while they read.
std::string read_process_file(pid_t number, const std::string& name);

// All empty if there is no such process.
ProcessFacts read_process(pid_t number);

// mpirun, mpiexec and their daemons above this process, nearest first. Empty if a person, a script
// or a batch system started it.
std::vector<ProcessMark> launchers_above();

// The same of another process that this one belongs to.
std::vector<ProcessMark> launchers_of(pid_t process);

// What mpirun or mpiexec writes its own errors to, or -1 where it runs on another host. A launcher
// that dies does not pass on what ranks say.
int open_launcher_errors();

// Leaves a process behind that waits so many seconds and then ends those of the launchers that
// are still there, and those of the job's `ranks` that are stopped and have no launcher any more
// to end them. Called by a rank of a job that has failed and said so: a launcher that cannot
// reach a host waits for minutes. From any thread.
void end_launchers(const std::vector<ProcessMark>& launchers,
                   const std::vector<ProcessMark>& ranks = {}, double seconds = 2);

}  // namespace millrace::comm
