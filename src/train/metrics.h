// Metrics of a run as JSON lines.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/line_file.h"
#include "train/observer.h"

namespace millrace::train {

// Writes one JSON object per step, evaluation and checkpoint, each in one piece, so that a
// reader never sees half a line of a finished write. A resumed run keeps the lines up to the
// step it goes on from; any other run starts an empty file. The file is touched when the job
// starts, not before. Lines that cannot be written are tried again with the next; `failure` tells
// of those that never could. Used by one thread.
class MetricsWriter : public TrainingObserver {
 public:
  explicit MetricsWriter(std::filesystem::path path) : path_(std::move(path)) {}

  void on_start(const JobStart& start) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;
  void on_checkpoint(const CheckpointReport& report) override;

  // Why lines are missing; empty if none are.
  std::string failure() const;

 private:
  void write_line(const Json& json);

  std::filesystem::path path_;
  std::optional<LineFile> file_;
};

}  // namespace millrace::train
