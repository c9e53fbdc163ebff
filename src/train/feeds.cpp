#include "train/feeds.h"

#include "base/error.h"

namespace millrace {
namespace {

constexpr std::string_view kSynthetic = "synthetic";

class SyntheticEvaluationData : public EvaluationData {
 public:
  SyntheticEvaluationData(const BatchShape& shape, uint64_t seed) : shape_(shape), seed_(seed) {}

  std::unique_ptr<Feed> start() const override {
    return make_synthetic_evaluation_feed(shape_, seed_);
  }

 private:
  BatchShape shape_;
  uint64_t seed_;
};

}  // namespace

BatchShape batch_shape(const TrainJob& job) {
  return {.batch = job.options.batch,
          .channels = job.options.channels,
          .height = job.options.image,
          .width = job.options.image,
          .classes = job.options.classes};
}

std::unique_ptr<Feed> make_training_feed(const TrainJob& job, FeedPosition start) {
  if (job.data.source == kSynthetic) return make_synthetic_feed(batch_shape(job), job.seed, start);
  fail_input("--data is '{}'; only synthetic is there.", job.data.source);
}

std::unique_ptr<EvaluationData> open_evaluation_data(const TrainJob& job) {
  if (job.evaluation_data == kSynthetic) {
    return std::make_unique<SyntheticEvaluationData>(batch_shape(job), job.seed);
  }
  fail_input("--eval-data is '{}'; only synthetic is there.", job.evaluation_data);
}

}  // namespace millrace
