#include "cli/bench_scaling.h"

#include <fmt/format.h>

#include <memory>

#include "backend/cpu/cores.h"
#include "base/error.h"
#include "base/file.h"
#include "bench/scaling.h"
#include "cli/flag_numbers.h"
#include "cli/job_flags.h"
#include "cli/standard_files.h"

namespace millrace::cli {
namespace {

constexpr const char* kScalingHelp =
    "Training speed on more and more devices, in float32 and in 16 bits.\n"
    "Every configuration runs --repeat times, each time in a process of its own and in turn with\n"
    "the others. The table gives medians, the speed-up over the fewest devices and the speed in\n"
    "16 bits over float32; devices that have to share cores are marked.";

struct ScalingFlags {
  bench::ScalingOptions options;
  std::string summary;
};

int run(const ScalingFlags& flags) {
  bench::ScalingOptions options = flags.options;
  choose("--model", options.model, models::model_names());
  if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
  options.cores = backend::available_cores();
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  const auto rows = bench::run_scaling(
      options, [](const std::string& sentence) { print_error("{}\n", sentence); });
  fmt::print("{}", bench::to_table(rows, options));
  if (!flags.summary.empty())
    write_text(flags.summary, bench::to_json(rows, options).dump(2) + "\n");
  return kExitSuccess;
}

}  // namespace

void add_scaling_suite(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<ScalingFlags>();
  bench::ScalingOptions& options = flags->options;
  CLI::App* suite = bench.add_subcommand("scaling", kScalingHelp);
  suite->add_option("--model", options.model, "The network")->capture_default_str();
  suite->add_option("--devices", options.devices, "Numbers of devices, comma-separated")
      ->delimiter(',')
      ->capture_default_str();
  suite->add_option("--precisions", options.precisions, "Among fp32, fp16 and bf16")
      ->delimiter(',')
      ->capture_default_str();
  suite->add_option("--batch", options.batch, "Samples per device")->capture_default_str();
  suite
      ->add_option("--image", options.image,
                   "Height and width of the images [the model's usual size]")
      ->check(at_least(1));
  suite->add_option("--repeat", options.repeat, "Runs of each configuration")
      ->capture_default_str();
  suite->add_option("--steps", options.steps, "Measured steps of each run")->capture_default_str();
  suite
      ->add_option("--threads-per-device", options.threads,
                   "Threads of each device [as many as the most devices have cores for]")
      ->check(at_least(1));
  suite->add_option("--summary", flags->summary, "Write the rows to this file as JSON");
  suite->callback([&chosen, flags] { chosen = [flags] { return run(*flags); }; });
}

}  // namespace millrace::cli
