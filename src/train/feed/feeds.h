// The feeds that a job asks for.
#pragma once

#include <memory>

#include "data/image/transform.h"
#include "data/record_source.h"
#include "train/feed/feed.h"
#include "train/job.h"

namespace millrace::train {

// What an evaluation of the job does to images. Throws InputError naming --augment.
data::TransformOptions evaluation_transform(const TrainJob& job);

BatchShape batch_shape(const StepSettings& job, const std::vector<RowRange>& rows = {});

// The training data from a position on, of each batch only the rows given (all if none are). The
// job's batch is that of the whole job. Throws InputError naming the data set.
std::unique_ptr<Feed> make_training_feed(const TrainJob& job, FeedPosition start,
                                         const std::vector<RowRange>& rows = {});

// Likewise from records of any kind; those that are trained on.
std::unique_ptr<Feed> make_training_feed(const TrainJob& job,
                                         std::shared_ptr<const data::RecordSource> source,
                                         FeedPosition start,
                                         const std::vector<RowRange>& rows = {});

// An evaluation set; `start` goes through it once from the beginning. Opened before training
// starts, so that a mistake shows at once.
class EvaluationData {
 public:
  virtual ~EvaluationData() = default;
  virtual std::unique_ptr<Feed> start() const = 0;
};

// Records of any kind, once in order, as an evaluation of the job sees them.
std::unique_ptr<Feed> make_evaluation_feed(const TrainJob& job,
                                           std::shared_ptr<const data::RecordSource> source,
                                           const std::vector<RowRange>& rows = {});

std::unique_ptr<EvaluationData> open_evaluation_data(const TrainJob& job,
                                                     const std::vector<RowRange>& rows = {});

// The same samples cropped in so many ways (data::crop_views), a feed for each. Throws InputError
// for more than one where images are taken whole.
std::vector<std::unique_ptr<Feed>> make_evaluation_views(
    const TrainJob& job, const std::shared_ptr<const data::RecordSource>& source, int crops);
// Likewise of the job's evaluation data.
std::vector<std::unique_ptr<Feed>> open_evaluation_views(const TrainJob& job, int crops);

}  // namespace millrace::train
