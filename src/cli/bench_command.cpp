// millrace bench: suites that compare.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "bench/single.h"
#include "bench/step_server.h"
#include "cli/bench_head_command.h"
#include "cli/bench_published.h"
#include "cli/bench_scaling.h"
#include "cli/command.h"
#include "cli/flag_numbers.h"
#include "cli/interruption.h"
#include "cli/job_flags.h"
#include "cli/standard_files.h"
#include "comm/mpi_group.h"

namespace millrace::cli {
namespace {

constexpr const char* kSingleHelp =
    "One device against PyTorch and against the limit of oneDNN's primitives.\n"
    "Three processes take turns, a step each: Millrace, PyTorch in NCHW and PyTorch in\n"
    "channels-last. The table gives medians, the better PyTorch layout, and which share of the\n"
    "speed of the convolutions, linear layers and batch norms alone the whole step reaches.";

struct SingleFlags {
  std::string jobs = "resnet50:64,vgg16:28,vgg16:28:direct,alexnet:252";
  int rounds = 5;
  int threads = 2;
  int64_t image = 224;
  bool no_peer = false;
  bool no_limit = false;
  std::string peer_script = "bench/peer_pytorch.py";
  std::string summary;
};

int run(const SingleFlags& flags) {
  bench::SingleOptions options;
  for (const std::string& text : split(flags.jobs, ',')) {
    options.jobs.push_back(bench::parse_single_job(text));
  }
  if (flags.rounds < 1) fail_input("--rounds is {}; it must be at least 1.", flags.rounds);
  if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
  options.rounds = flags.rounds;
  options.threads = flags.threads;
  options.image = flags.image;
  options.peer = !flags.no_peer;
  options.limit = !flags.no_limit;
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  options.peer_script = flags.peer_script;
  const auto rows = bench::run_single(
      options, [](const std::string& sentence) { print_error("{}\n", sentence); });
  fmt::print("{}", bench::to_table(rows));
  if (!flags.summary.empty()) write_text(flags.summary, bench::to_json(rows).dump(2) + "\n");
  return kExitSuccess;
}

struct ServedSteps : JobFlags {
  bool inference = false;
};

int serve(const ServedSteps& flags, comm::MpiSession* session) {
  train::TrainJob job = to_job(flags, session == nullptr ? 1 : session->size());
  job.processes = session;
  if (flags.inference && session != nullptr) fail_input("--inference evaluates in one process.");
  bench::serve_steps(job, standard_lines(), flags.inference);
  return kExitSuccess;
}

}  // namespace

void add_bench_command(CLI::App& program, Action& chosen, comm::MpiSession* session,
                       Interruption& interruption) {
  CLI::App* bench = program.add_subcommand("bench", "Measure against other systems and limits");
  bench->require_subcommand(1);

  auto single = std::make_shared<SingleFlags>();
  CLI::App* suite = bench->add_subcommand("single", kSingleHelp);
  suite->add_option("--jobs", single->jobs, "MODEL:BATCH[:ALGORITHM], comma-separated")
      ->capture_default_str();
  suite->add_option("--rounds", single->rounds, "Measured steps of each process")
      ->capture_default_str();
  suite->add_option("--threads", single->threads, "Threads of each process")
      ->check(at_least(1))
      ->capture_default_str();
  suite->add_option("--image", single->image, "Height and width of the images")
      ->check(at_least(1))
      ->capture_default_str();
  suite->add_flag("--no-peer", single->no_peer, "Leave PyTorch out");
  suite->add_flag("--no-limit", single->no_limit, "Leave the primitives' limit out");
  suite->add_option("--peer-script", single->peer_script, "The script that runs PyTorch")
      ->capture_default_str();
  suite->add_option("--summary", single->summary, "Write the table to this file as JSON");
  suite->callback([&chosen, single] { chosen = [single] { return run(*single); }; });

  add_bench_head_command(*bench, chosen);
  add_scaling_suite(*bench, chosen);
  add_published_suite(*bench, chosen, interruption);

  auto steps = std::make_shared<ServedSteps>();
  CLI::App* server = bench->add_subcommand(
      "steps", "Run training steps on request, a line 'step' each; used by the suites");
  add_model_flags(*server, *steps);
  add_data_flags(*server, *steps);
  add_device_flags(*server, *steps);
  add_training_flags(*server, *steps);
  server->add_flag("--inference", steps->inference, "Evaluate batches instead");
  server->callback(
      [&chosen, steps, session] { chosen = [steps, session] { return serve(*steps, session); }; });
}

}  // namespace millrace::cli
