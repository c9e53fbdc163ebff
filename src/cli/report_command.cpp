#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "report/report.h"

namespace millrace {
namespace {

constexpr const char* kExamples = R"(Examples:
  What one run did and needed:
    millrace train --model vgg16 --batch 8 --steps 20 --summary run/run.json --trace run/trace.json
    millrace report run -o run/report
  Several runs side by side, each in a directory of its own:
    millrace report runs -o runs/report

Writes index.html, a page that needs no other file: tables, curves of loss and throughput, memory,
a timeline to zoom into, predicted against measured, and the environment. A damaged file of a
directory is named there, and the rest is shown. Prints tables as Markdown: the run's figures and each device's memory from a summary or plan; from
a trace where each device's time went, the bubble as a share of all time and relative to the work,
and waits by cause. Writes them to report.md, and a picture of a few steps of each trace.)";

struct ReportFlags {
  std::vector<std::string> paths;
  std::string output;
  int64_t first_step = -1;
  int64_t steps = 2;
};

// Files that are named one by one are one run; each directory is a run, or several.
RunSet read_all(const std::vector<std::string>& paths) {
  RunSet all;
  Run loose;
  for (const std::string& path : paths) {
    RunSet set = read_runs(path);
    all.notes.insert(all.notes.end(), set.notes.begin(), set.notes.end());
    for (Run& run : set.runs) {
      if (std::filesystem::is_directory(path)) {
        all.runs.push_back(std::move(run));
        continue;
      }
      if (loose.name.empty()) loose.name = run.name;
      loose.files.push_back(std::move(run.files.front()));
    }
  }
  if (!loose.files.empty()) all.runs.insert(all.runs.begin(), std::move(loose));
  return all;
}

int run_report(const ReportFlags& flags) {
  if (flags.paths.empty()) {
    fail_input("'millrace report' needs a file of --summary or --trace, or a directory of them.");
  }
  if (flags.output.empty()) fail_input("-o is missing: name the directory for the report.");
  if (flags.steps < 1) fail_input("--steps is {}; it must be at least 1.", flags.steps);
  fmt::print("{}",
             write_report(read_all(flags.paths), {flags.output, flags.first_step, flags.steps}));
  return kExitSuccess;
}

}  // namespace

void add_report_command(CLI::App& program, Action& chosen) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command =
      program.add_subcommand("report", "Draw and tabulate what runs wrote: time, bubbles, memory");
  command->add_option("paths", flags->paths, "Files of --summary or --trace, or directories");
  command->add_option("-o,--output", flags->output, "Directory for report.md and the pictures")
      ->group("Output");
  command->add_option("--steps", flags->steps, "Steps in each picture")
      ->group("Output")
      ->capture_default_str();
  command
      ->add_option("--first-step", flags->first_step,
                   "The first step in each picture, from 0; otherwise past the beginning")
      ->group("Output");
  command->footer(kExamples);
  command->callback([flags, &chosen] { chosen = [flags] { return run_report(*flags); }; });
}

}  // namespace millrace
