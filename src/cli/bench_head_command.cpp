// millrace bench head: classifiers for many identities.
#include "cli/bench_head_command.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "bench/head.h"
#include "bench/head_server.h"
#include "cli/command.h"
#include "cli/head_flags.h"
#include "cli/standard_files.h"

namespace millrace::cli {
namespace {

constexpr const char* kHeadHelp =
    "The classifier alone, for up to millions of identities: random embeddings, ArcFace's margin,\n"
    "SGD with momentum. dp and mp use every identity in every step, pfc a sample of them. Each "
    "row\n"
    "is measured in a process of its own; with --peer PyTorch takes turns with it, a step each.";

struct HeadBenchFlags {
  std::string classes = "125000,250000,500000,1000000";
  std::string modes = "mp,pfc";
  bench::HeadBenchOptions options;
  std::string peer_script = "bench/peer_partial_fc.py";
  std::string peer_python = "/usr/bin/python3";
  std::string summary;
};

std::vector<int64_t> parse_classes(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : split(text, ',')) {
    int64_t number = 0;
    const char* end = part.data() + part.size();
    const auto [stop, status] = std::from_chars(part.data(), end, number);
    if (status != std::errc() || stop != end) {
      fail_input("--classes has '{}', which is not a number.", part);
    }
    numbers.push_back(number);
  }
  return numbers;
}

int run(const HeadBenchFlags& flags) {
  bench::HeadBenchOptions options = flags.options;
  options.classes = parse_classes(flags.classes);
  options.modes = split(flags.modes, ',');
  options.program = std::filesystem::read_symlink("/proc/self/exe");
  options.peer_script = flags.peer_script;
  options.peer_python = flags.peer_python;
  head_storage(options.storage);
  if (!flags.summary.empty()) require_writable(flags.summary, "--summary");
  const auto rows = bench::run_head_bench(
      options, [](const std::string& sentence) { print_error("{}\n", sentence); });
  fmt::print("{}", bench::to_table(rows));
  if (!flags.summary.empty())
    write_text(flags.summary, bench::to_json(rows, options).dump(2) + "\n");
  return kExitSuccess;
}

struct StepFlags {
  bench::HeadJob job;
  std::string storage = "fp32";
};

int serve_head(const StepFlags& flags) {
  bench::HeadJob job = flags.job;
  job.head.storage = head_storage(flags.storage);
  job.head.addend = 0.5;
  bench::serve_head_steps(job, standard_lines());
  return kExitSuccess;
}

void add_sizes(CLI::App& command, double& sample_rate, int64_t& batch, int64_t& dimension,
               int& threads, std::string& storage) {
  command.add_option("--sample-rate", sample_rate, "Share of the identities in a step of pfc")
      ->capture_default_str();
  command.add_option("--batch", batch, "Samples per step")->capture_default_str();
  command.add_option("--dimension", dimension, "Features of an embedding")->capture_default_str();
  command.add_option("--threads", threads, "Threads of each process")->capture_default_str();
  command
      .add_option("--head-dtype", storage, "Storage of centres and momentum: fp32, bf16 or fp16")
      ->capture_default_str();
}

}  // namespace

bench::RequestLines standard_lines() {
  return {[](std::string& line) { return static_cast<bool>(std::getline(std::cin, line)); },
          [](const std::string& answer) { std::cout << answer << std::endl; }};
}

void add_bench_head_command(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<HeadBenchFlags>();
  bench::HeadBenchOptions& options = flags->options;
  CLI::App* suite = bench.add_subcommand("head", kHeadHelp);
  suite->add_option("--classes", flags->classes, "Numbers of identities, comma-separated")
      ->capture_default_str();
  suite->add_option("--modes", flags->modes, "Among dp, mp and pfc, comma-separated")
      ->capture_default_str();
  add_sizes(*suite, options.sample_rate, options.batch, options.dimension, options.threads,
            options.storage);
  suite->add_option("--steps", options.steps, "Measured steps of each row")->capture_default_str();
  suite->add_flag("--peer", options.peer, "Measure PyTorch beside it");
  suite
      ->add_option("--peer-update", options.peer_update,
                   "How PyTorch updates in pfc: sampled (only the sample's centres), dense, or the "
                   "best of both")
      ->capture_default_str();
  suite->add_option("--peer-script", flags->peer_script, "The script that runs PyTorch")
      ->capture_default_str();
  suite->add_option("--peer-python", flags->peer_python, "The Python that has PyTorch")
      ->capture_default_str();
  suite->add_option("--summary", flags->summary, "Write the rows to this file as a JSON list");
  suite->callback([&chosen, flags] { chosen = [flags] { return run(*flags); }; });

  auto steps = std::make_shared<StepFlags>();
  CLI::App* server = bench.add_subcommand(
      "head-steps", "Run steps of a head on request, a line 'step' each; used by the suites");
  server->add_option("--classes", steps->job.head.classes, "Number of identities")->required();
  add_sizes(*server, steps->job.head.sample_rate, steps->job.batch, steps->job.dimension,
            steps->job.threads, steps->storage);
  server->callback([&chosen, steps] { chosen = [steps] { return serve_head(*steps); }; });
}

}  // namespace millrace::cli
