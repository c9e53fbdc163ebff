// A command line from its first word to its exit status.
#pragma once

#include <string>
#include <vector>

namespace millrace::comm {
class MpiSession;
}  // namespace millrace::comm

namespace millrace::cli {

class Interruption;

// Parses the words behind the program's name and runs the command that they name. Throws
// InputError for words that cannot be understood, and whatever the command throws. `session` joins
// this process with the other ranks of its job; null if it is alone.
int run_command_line(std::vector<std::string> arguments, comm::MpiSession* session,
                     Interruption& interruption);

}  // namespace millrace::cli
