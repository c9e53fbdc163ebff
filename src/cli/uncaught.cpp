#include "cli/uncaught.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/shortage.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/standard_files.h"
#include "comm/job_processes.h"
#include "comm/launcher.h"
#include "comm/mpi_group.h"

namespace millrace::cli {
namespace {

// All that a terminate handler can reach.
std::atomic<comm::MpiSession*> session_of_errors = nullptr;

constexpr size_t kReserve = size_t{4} << 20;
std::atomic<void*> reserve = nullptr;

// Whoever is to tell that there is no memory finds some.
void give_reserve_back() {
  if (void* room = reserve.exchange(nullptr)) ::munmap(room, kReserve);
  throw std::bad_alloc();
}

// Addresses alone, which is what a limit (ulimit -v) counts.
void take_reserve() {
  if (reserve != nullptr) return;
  void* room = ::mmap(nullptr, kReserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room != MAP_FAILED) reserve = room;
  std::set_new_handler(give_reserve_back);
}

constexpr rlim_t kEnoughStack = rlim_t{512} << 10;

rlim_t stack_limit() {
  rlimit limit = {};
  return ::getrlimit(RLIMIT_STACK, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// Those of other threads are as large as this limit says.
void require_stack() {
  if (stack_limit() >= 2 * kEnoughStack) return;
  print_error("millrace: The stack may take {} (ulimit -s); {} are needed.\n",
              format_bytes(stack_limit()), format_bytes(2 * kEnoughStack));
  ::_exit(kExitBadInput);
}

// The stack of the first thread grows while it is used, for which there may be no memory any more
// either: then a signal ends the process. Those of other threads are whole from their beginning.
[[gnu::noinline]] void take_stack() {
  constexpr size_t kPage = 4096;
  if (stack_limit() < 4 * kEnoughStack) return;
  std::array<char, kEnoughStack> room;
  volatile char* const bottom = room.data();
  for (size_t i = kEnoughStack; i > 0; i -= kPage) bottom[i - kPage] = 0;
}

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
  if (comm::MpiSession* session = session_of_errors) session->expect_no_answer(kExitJobFailed);
  print_error("millrace: {}\n", sentence);
  ::_exit(kExitJobFailed);
}

}  // namespace

std::string describe_shortage(const std::exception& error, const std::string& doing) {
  const char* shortage = shortage_text(error);
  if (shortage == nullptr) return "";
  const comm::LaunchPlace place = comm::launch_place();
  const std::string rank = place.ranks < 2 ? ""
                                           : fmt::format("rank {} on host {}{}: ", place.rank,
                                                         comm::host_of_this_process(), doing);
  return rank + shortage;
}

RankOfErrors::RankOfErrors(comm::MpiSession& session) { session_of_errors = &session; }

RankOfErrors::~RankOfErrors() { session_of_errors = nullptr; }

void tell_uncaught_errors() {
  require_stack();
  take_reserve();
  take_stack();
  std::set_terminate(end_with_sentence);
}

}  // namespace millrace::cli
