// A network with weights, ready to look at images.
#pragma once

#include <optional>

#include "train/engine.h"
#include "train/faces/centre_classifier.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {

// The classifier of a job with the weights of load_weights or of its newest valid checkpoint. A
// network with a margin head tells the trained identities apart by the cosines to their centres.
// Throws InputError for weights that do not fit or have no classifier. Immovable; used by one
// thread.
class EvaluationModel {
 public:
  EvaluationModel(const TrainJob& job, TrainingObserver& observer);

  Engine& engine() { return *engine_; }
  const TrainJob& job() const { return job_; }
  // Of a margin head; else 0.
  double cosine_scale() const { return centres_ ? centres_->scale : 0; }

 private:
  TrainJob job_;
  std::optional<TrainedCentres> centres_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace millrace::train
