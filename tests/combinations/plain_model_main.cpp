// plain_model [flags of millrace train] --output DIR --metrics FILE --segments 0,2,4
//
// Does the job as plain_model.h says; the harness holds the program's own run against it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/job_flags.h"
#include "plain_model.h"
#include "train/workload.h"

namespace millrace::combinations {
namespace {

struct Flags {
  cli::JobFlags job;
  std::string load_weights, start, output, metrics;
  std::vector<int64_t> segments;
  std::vector<int> newest;
  int ranks = 1;
  double average_decay = 0;
};

void run(const Flags& flags) {
  train::TrainJob job = cli::to_job(flags.job, flags.ranks);
  PlainModel model(job, {flags.newest.begin(), flags.newest.end()});
  model.average(flags.average_decay);
  if (!flags.start.empty()) model.load(flags.start);
  if (!flags.load_weights.empty()) model.load(flags.load_weights);
  const std::unique_ptr<train::Feed> feed = train::data_of(job).training({}, {});
  for (int64_t step = 0; step < flags.segments.front(); ++step) feed->next();
  std::string lines;
  for (size_t i = 0; i + 1 < flags.segments.size(); ++i) {
    model.run(flags.segments[i], flags.segments[i + 1], *feed, [&](const PlainModel::Step& step) {
      const Json line = {{"kind", "step"},
                         {"step", step.step},
                         {"loss", step.loss},
                         {"learning_rate", step.learning_rate}};
      lines += line.dump() + "\n";
    });
  }
  write_text(flags.metrics, lines);
  model.save(flags.output);
}

}  // namespace
}  // namespace millrace::combinations

int main(int count, char** arguments) {
  using namespace millrace;
  combinations::Flags flags;
  CLI::App program;
  cli::add_model_flags(program, flags.job);
  cli::add_data_flags(program, flags.job);
  cli::add_training_flags(program, flags.job);
  cli::add_device_flags(program, flags.job);
  program.add_option("--load-weights", flags.load_weights);
  program.add_option("--start", flags.start, "Weights and states to go on from");
  program.add_option("--output", flags.output)->required();
  program.add_option("--metrics", flags.metrics)->required();
  program.add_option("--segments", flags.segments, "Steps at which the pipeline is empty")
      ->delimiter(',')
      ->required();
  program.add_option("--newest", flags.newest, "Stages that use no old weights")->delimiter(',');
  program.add_option("--ranks", flags.ranks);
  program.add_option("--ema", flags.average_decay);
  program.add_option("--valid-share", flags.job.valid_share);
  try {
    program.parse(count, arguments);
    combinations::run(flags);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "plain_model: {}\n", error.what());
    return 1;
  }
}
