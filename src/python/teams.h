// Threads that OpenMP keeps for the thread that Python calls from.
#pragma once

namespace millrace::python {

// Ends the team of the calling thread in each OpenMP of this process: PyTorch's wheel brings one
// that may be the one used here and may be another, whose threads would go on looking for work for
// some milliseconds while Millrace computes. Teams start anew when they are used.
void end_teams();

// Ends them when what is called has returned.
struct EndTeams {
  EndTeams() = default;
  ~EndTeams() { end_teams(); }
  EndTeams(const EndTeams&) = delete;
  EndTeams& operator=(const EndTeams&) = delete;
};

}  // namespace millrace::python
