// Tells an Interruption what a training job would lose.
#pragma once

#include "cli/interruption.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::cli {

// Until the first step a signal ends the job, which has done nothing yet; from then on the step
// under way is finished and saved first. Borrows all it is made of.
class InterruptibleJob : public train::TrainingObserver {
 public:
  InterruptibleJob(const train::TrainJob& job, Interruption& interruption);

  void on_activity(std::string_view what) override;
  void on_start(const train::JobStart& start) override;
  void on_step(const train::StepReport& report) override;

 private:
  void finish_first(int64_t step, int64_t total_steps, double step_seconds);

  const train::TrainJob& job_;
  Interruption& interruption_;
};

}  // namespace millrace::cli
