// The `millrace` program: runs a command line and turns errors into one sentence and an exit
// status.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <optional>
#include <vector>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/interruption.h"
#include "comm/launcher.h"
#include "comm/launchers.h"
#include "comm/mpi_group.h"

namespace millrace {
namespace {

int fail(std::string_view message, int status) {
  fmt::print(stderr, "millrace: {}\n", message);
  return status;
}

}  // namespace
}  // namespace millrace

int main(int count, char** arguments) {
  using namespace millrace;
  const std::vector<ProcessMark> launchers = launchers_above();
  std::atomic<bool> said = false;
  // Of a rank that waits in MPI for others which are lost.
  const auto last_word = [&](const std::string& sentence) {
    if (!said.exchange(true)) fail(sentence, kExitJobFailed);
    end_launchers(launchers);
    ::_exit(kExitJobFailed);
  };
  std::optional<MpiSession> session;  // ends last, when errors have been printed
  const auto report = [&](std::string_view message, int status) {
    if (session) session->expect_no_answer();
    if (!said.exchange(true)) fail(message, status);
    if (session && session->failed()) end_launchers(launchers);
    return status;
  };
  try {
    Interruption interruption;
    if (launch_place().binding == Binding::by_default) keep_to(host_cores());
    if (launched_ranks() > 1) session.emplace(last_word);
    if (session && session->rank() != 0) interruption.be_silent();
    return run_command_line({arguments + 1, arguments + count}, session ? &*session : nullptr,
                            interruption);
  } catch (const InputError& error) {
    return report(error.what(), kExitBadInput);
  } catch (const std::bad_alloc&) {
    return report("There is not enough memory for this job.", kExitJobFailed);
  } catch (const std::exception& error) {
    return report(error.what(), kExitJobFailed);
  }
}
