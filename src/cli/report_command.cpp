#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/flag_numbers.h"
#include "report/report.h"

namespace millrace::cli {
namespace {

constexpr const char* kReportExamples = R"(Examples:
  What one run did and needed; a directory holds its files, under any names:
    millrace train --model vgg16 --batch 8 --steps 20 --placement 0:0.0:1 \
      --summary run/summary.json --metrics run/metrics.jsonl --trace run/trace.json
    millrace report run -o run/report
  Predicted against measured, both timelines one above the other:
    millrace plan --check --model vgg16 --batch 8 --placement 0:0.0:1 --run run
    millrace report run -o run/report
  Several runs side by side, each in a directory of its own:
    millrace report runs -o runs/report

What each file adds:
  --summary         tables of the run and its memory, the environment
  --metrics         curves of loss, throughput, learning rate and loss scale, evaluations
  --trace           a timeline to zoom into, where the time went, memory over time
  plan --json       what was predicted, next to what was measured
  plan --check --run DIR   all of these

Writes index.html, a page that needs no other file and no network; report.md, which is also
printed: the same tables as Markdown; and a picture of a few steps of each trace as SVG. A damaged
file of a directory, and damaged lines of metrics, are named there, and the rest is shown.
Exit status: 0 success, 2 nothing could be read, with one sentence.)";

struct ReportFlags {
  std::vector<std::string> paths;
  std::string output;
  int64_t first_step = -1;
  int64_t steps = 2;
};

bool has_trace(const report::RunSet& set) {
  for (const report::Run& run : set.runs) {
    for (const report::RunFile& file : run.files) {
      if (file.kind == report::RunFile::Kind::trace) return true;
    }
  }
  return false;
}

int run_report(const ReportFlags& flags, bool names_steps) {
  if (flags.paths.empty()) {
    fail_input(
        "'millrace report' needs a file of --summary, --metrics or --trace, or a directory of "
        "them.");
  }
  if (flags.output.empty()) fail_input("-o is missing: name the directory for the report.");
  if (flags.steps < 1) fail_input("--steps is {}; it must be at least 1.", flags.steps);
  report::RunSet set =
      report::read_runs(std::vector<std::filesystem::path>(flags.paths.begin(), flags.paths.end()));
  if (names_steps && !has_trace(set)) {
    fail_input("--steps and --first-step have no effect without a file of --trace among these.");
  }
  for (std::string& note : set.notes) note = with_flags(note);
  fmt::print("{}", report::write_report(set, {flags.output, flags.first_step, flags.steps}));
  return kExitSuccess;
}

}  // namespace

void add_report_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command =
      program.add_subcommand("report", "Draw and tabulate what runs wrote: time, bubbles, memory");
  command->add_option(
      "paths", flags->paths,
      "Files of --summary, --metrics, --trace or plan --json, or directories of them");
  command
      ->add_option("-o,--output", flags->output,
                   "Directory for index.html, report.md and the pictures")
      ->group("Output");
  command->add_option("--steps", flags->steps, "Steps that timelines open with and pictures show")
      ->group("Output")
      ->capture_default_str();
  command
      ->add_option("--first-step", flags->first_step,
                   "The first of them, from 0; otherwise one in the middle")
      ->check(at_least(0))
      ->group("Output");
  command->footer(kReportExamples);
  command->callback([flags, command, &chosen] {
    const bool names_steps = command->count("--steps") + command->count("--first-step") > 0;
    chosen = [flags, names_steps] { return run_report(*flags, names_steps); };
  });
}

}  // namespace millrace::cli
