// Errors that nobody caught.
#pragma once

#include <exception>
#include <string>

namespace millrace::comm {
class MpiSession;
}  // namespace millrace::comm

namespace millrace::cli {

// One sentence, which names the rank and what it was doing (", in step 3") if there are several,
// for an error that says that memory, or threads, ran out; empty for any other.
std::string describe_shortage(const std::exception& error, const std::string& doing = "");

// From now on an exception that leaves a thread, or is thrown where none may be, ends the process
// with one sentence and status 1 instead of an abort. Memory for the sentence is kept until there
// is no other.
void tell_uncaught_errors();

// While there is one, the sentence says what the rank of this session was doing, and its witness
// nothing more; before, that the job began.
class RankOfErrors {
 public:
  explicit RankOfErrors(comm::MpiSession& session);
  ~RankOfErrors();
  RankOfErrors(const RankOfErrors&) = delete;
  RankOfErrors& operator=(const RankOfErrors&) = delete;
};

}  // namespace millrace::cli
