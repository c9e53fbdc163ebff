// How a process has ended, whoever its parent is.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace millrace::comm {

// /proc/NUMBER/stat behind the name; empty if there is no such process.
std::vector<std::string> stat_words(pid_t process);

// The status, as waitpid tells it, of a process that has ended or is about to; `handle` is a pidfd
// of it. Where the system does not tell, it is known only until the parent has asked for it.
std::optional<int> status_of_ended(pid_t process, int handle);

// "was ended by signal 9 (Killed)" or "ended with status 3"; "is gone" where nobody knows. Empty
// for an end that is no failure.
std::string describe_rank_end(std::optional<int> status);

}  // namespace millrace::comm
