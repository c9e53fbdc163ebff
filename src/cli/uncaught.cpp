#include "cli/uncaught.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <new>
#include <system_error>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/standard_files.h"
#include "comm/job_processes.h"
#include "comm/launcher.h"
#include "comm/mpi_group.h"

namespace millrace::cli {
namespace {

// All that a terminate handler can reach.
std::atomic<const comm::MpiSession*> session_of_errors = nullptr;

std::string doing_of_this_rank() {
  const comm::MpiSession* session = session_of_errors;
  return session == nullptr ? ", while the job began" : session->doing();
}

[[noreturn]] void end_with_sentence() {
  std::string sentence = "An unknown error ended the program.";
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    sentence = describe_shortage(error, doing_of_this_rank());
    if (sentence.empty()) sentence = with_flags(marked_text(error));
  } catch (...) {  // NOLINT: nothing is known of it
  }
  print_error("millrace: {}\n", sentence);
  ::_exit(kExitJobFailed);
}

}  // namespace

std::string describe_shortage(const std::exception& error, const std::string& doing) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  const auto is = [&](std::errc code) { return system != nullptr && system->code() == code; };
  const bool memory =
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr || is(std::errc::not_enough_memory);
  if (!memory && !is(std::errc::resource_unavailable_try_again)) return "";
  const comm::LaunchPlace place = comm::launch_place();
  const std::string rank = place.ranks < 2 ? ""
                                           : fmt::format("rank {} on host {}{}: ", place.rank,
                                                         comm::host_of_this_process(), doing);
  return rank + (memory ? "There is not enough memory for this job."
                        : "No thread could be started: memory (ulimit -v) or the number of "
                          "processes (ulimit -u) is limited.");
}

RankOfErrors::RankOfErrors(const comm::MpiSession& session) { session_of_errors = &session; }

RankOfErrors::~RankOfErrors() { session_of_errors = nullptr; }

void tell_uncaught_errors() { std::set_terminate(end_with_sentence); }

}  // namespace millrace::cli
