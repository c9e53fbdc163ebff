// The `millrace` program: runs a command line and turns errors into one sentence and an exit
// status.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/lost_pages.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/command_line.h"
#include "cli/flag_names.h"
#include "cli/interruption.h"
#include "cli/standard_files.h"
#include "cli/uncaught.h"
#include "comm/job_processes.h"
#include "comm/launcher.h"
#include "comm/launchers.h"
#include "comm/mpi_group.h"

namespace millrace::cli {
namespace {

// Seconds in which it ends by itself when ranks refuse; Open MPI's may crash if told to meanwhile.
constexpr double kLauncherPatience = 5;

int fail(std::string_view message, int status) {
  print_error("millrace: {}\n", on_one_line(with_flags(message)));
  return status;
}

// What a job prints tells how it goes, and its results are in files; of other commands it is the
// result.
int end_output(const std::vector<std::string>& arguments, int status) {
  const std::string lost = finish_output();
  if (lost.empty()) return status;
  const bool is_job = !arguments.empty() && arguments[0] == "train";
  print_error("millrace: {}{}\n", is_job ? "warning: " : "", lost);
  return status == kExitSuccess && !is_job ? kExitJobFailed : status;
}

}  // namespace
}  // namespace millrace::cli

int main(int count, char** arguments) {
  using namespace millrace;
  cli::open_standard_files();
  cli::tell_uncaught_errors();
  survive_lost_pages();
  const std::vector<comm::ProcessMark> launchers = comm::launchers_above();
  std::atomic<bool> said = false;
  // Of a rank that waits in MPI for others which are lost.
  const auto last_word = [&](const std::string& sentence) {
    if (!said.exchange(true)) cli::fail(sentence, cli::kExitJobFailed);
    comm::end_launchers(launchers, comm::other_ranks());
    ::_exit(cli::kExitJobFailed);
  };
  std::optional<comm::MpiSession> session;  // ends last, when errors have been printed
  std::optional<cli::RankOfErrors> rank_of_errors;
  const auto report = [&](std::string_view message, int status) {
    if (session) session->expect_no_answer(status);
    if (!said.exchange(true)) cli::fail(message, status);
    // A launcher waits for ranks that have not come to MPI and do not.
    const bool never_came = !session && comm::launched_ranks() > 1;
    if (never_came) comm::end_launchers(launchers, comm::other_ranks(), cli::kLauncherPatience);
    if (session && session->failed()) comm::end_launchers(launchers, comm::other_ranks());
    return status;
  };
  try {
    cli::Interruption interruption;
    if (comm::launch_place().binding == comm::Binding::by_default)
      backend::keep_to(backend::host_cores());
    if (comm::launched_ranks() > 1) {
      interruption.end_at_once("Interrupted while the job began; nothing was changed.");
      session.emplace(last_word);
      rank_of_errors.emplace(*session);
      interruption.tell([&session] { session->expect_end(); });
    }
    if (session && session->rank() != 0) interruption.be_silent();
    const int status = cli::run_command_line({arguments + 1, arguments + count},
                                             session ? &*session : nullptr, interruption);
    expect_no_lost_pages();
    return cli::end_output({arguments + 1, arguments + count}, status);
  } catch (const InputError& error) {
    return report(error.marked(), cli::kExitBadInput);
  } catch (const std::exception& error) {
    const std::string shortage =
        cli::describe_shortage(error, session ? session->doing() : ", while the job began");
    return report(shortage.empty() ? marked_text(error) : shortage, cli::kExitJobFailed);
  }
}
