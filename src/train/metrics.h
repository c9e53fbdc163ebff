// Metrics of a run as JSON lines.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "train/observer.h"

namespace millrace {

// Writes one JSON object per step, evaluation and checkpoint, each in one piece, so that a
// reader never sees half a line of a finished write. A resumed run keeps the lines up to the
// step it goes on from; any other run starts an empty file. The file is touched when the job
// starts, not before. If it cannot be written any more, `failure` says so and nothing else
// happens. Used by one thread.
class MetricsWriter : public TrainingObserver {
 public:
  explicit MetricsWriter(std::filesystem::path path) : path_(std::move(path)) {}
  ~MetricsWriter() override;
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void on_start(const JobStart& start) override;
  void on_step(const StepReport& report) override;
  void on_evaluation(const EvaluationReport& report) override;
  void on_checkpoint(const CheckpointReport& report) override;

  const std::string& failure() const { return failure_; }

 private:
  void write_line(const Json& json);

  std::filesystem::path path_;
  std::string failure_;
  int descriptor_ = -1;
};

}  // namespace millrace
