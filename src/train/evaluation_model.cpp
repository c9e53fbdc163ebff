#include "train/evaluation_model.h"

#include "base/error.h"
#include "train/job_state.h"
#include "train/weights.h"

namespace millrace::train {

EvaluationModel::EvaluationModel(const TrainJob& job, TrainingObserver& observer) : job_(job) {
  const std::filesystem::path weights = weights_file(job_, observer);
  centres_ = find_centres(weights);
  if (centres_) {
    if (centres_->classes != job_.options.classes) {
      fail_input("‹classes› is {}, but '{}' has {} class centres.", job_.options.classes,
                 weights.string(), centres_->classes);
    }
    job_.options.cosines = true;
  } else {
    require_classifier(job_.model, weights);
  }
  engine_ = std::make_unique<Engine>(job_, Purpose::evaluation, observer);
  engine_->start({});
  JobState state(*engine_);
  load_weights(state, weights);
  if (centres_) load_centres_as_classifier(*centres_, state);
}

}  // namespace millrace::train
