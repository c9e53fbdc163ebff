#include "train/feed/feeds.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/share_source.h"
#include "train/feed/loader_feed.h"

namespace millrace::train {
namespace {

constexpr std::string_view kSynthetic = "synthetic";
constexpr int64_t kLargestSmallImage = 64;
constexpr int kPrefetch = 3;

enum class Use : uint8_t { training, evaluation };

data::TransformOptions transform_for(const TrainJob& job, Use use) {
  const auto size = static_cast<int>(job.options.image);
  const auto channels = static_cast<int>(job.options.channels);
  const std::vector<std::string> names = {"auto", "photo", "face", "small", "none"};
  std::string name = job.data.augment;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string close = nearest(name, names);
    fail_input("‹augment› is '{}'; choose auto, photo, face, small or none{}.", name,
               close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
  }
  const bool plain = use == Use::evaluation || name == "none";
  if (name == "auto" || name == "none") {
    name = job.options.image <= kLargestSmallImage ? "small" : "photo";
    if (!job.model.empty() && models::is_face_model(job.model)) name = "face";
  }
  data::TransformOptions options;
  if (name == "small") {
    options = plain ? data::small_evaluation(size, channels) : data::small_training(size, channels);
  } else if (name == "face") {
    options = plain ? data::face_evaluation(size) : data::face_training(size);
  } else {
    options = plain ? data::photograph_evaluation(size) : data::photograph_training(size);
  }
  options.channels = channels;
  if (use == Use::evaluation && job.data.recipe) {
    options = data::transform_of(data::resized(*job.data.recipe, size));
    options.channels = channels;
  }
  options.mean = job.data.mean.value_or(options.mean);
  options.deviation = job.data.deviation.value_or(options.deviation);
  return options;
}

data::LoaderOptions loader_options(const TrainJob& job, Use use,
                                   const std::vector<RowRange>& rows) {
  data::LoaderOptions options;
  options.rows = rows;
  options.transform = transform_for(job, use);
  options.batch = job.options.batch;
  options.seed = job.seed;
  options.workers = job.data.workers;
  options.prefetch = kPrefetch;
  options.classes = job.options.classes;
  options.label_offset = job.data.label_offset;
  options.bad_records = job.data.skip_bad_records ? data::BadRecords::skip : data::BadRecords::fail;
  return options;
}

// Every record once, in order.
data::LoaderOptions evaluation_options(const TrainJob& job, const std::vector<RowRange>& rows) {
  data::LoaderOptions options = loader_options(job, Use::evaluation, rows);
  options.shuffle = false;
  options.last_batch = data::LastBatch::pad;
  options.epochs = 1;
  return options;
}

// The evaluation data, or what is held back of the training data.
std::unique_ptr<data::RecordSource> open_evaluation_source(const RunSettings& job) {
  if (job.data.valid_share == 0) {
    return data::open_source(job.evaluation_data, data::Split::test, job.class_names);
  }
  return data::take_share(
      data::open_source(job.evaluation_data, data::Split::train, job.class_names),
      job.data.valid_share, job.seed, data::Split::test);
}

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

class LoadedEvaluationData : public EvaluationData {
 public:
  LoadedEvaluationData(const TrainJob& job, const std::vector<RowRange>& rows)
      : source_(open_evaluation_source(job)), options_(evaluation_options(job, rows)) {}

  std::unique_ptr<Feed> start() const override { return make_loader_feed(source_, options_); }

 private:
  std::shared_ptr<const data::RecordSource> source_;
  data::LoaderOptions options_;
};

}  // namespace

data::TransformOptions evaluation_transform(const TrainJob& job) {
  return transform_for(job, Use::evaluation);
}

BatchShape batch_shape(const StepSettings& job, const std::vector<RowRange>& rows) {
  return {.batch = job.options.batch,
          .channels = job.options.channels,
          .height = job.options.image,
          .width = job.options.image,
          .classes = job.options.classes,
          .rows = rows};
}

std::unique_ptr<Feed> make_training_feed(const TrainJob& job, FeedPosition start,
                                         const std::vector<RowRange>& rows) {
  if (job.data.source == kSynthetic) {
    return make_synthetic_feed(batch_shape(job, rows), job.seed, start);
  }
  std::unique_ptr<data::RecordSource> source =
      data::open_source(job.data.source, data::Split::train, job.class_names);
  if (job.data.valid_share > 0) {
    source =
        data::take_share(std::move(source), job.data.valid_share, job.seed, data::Split::train);
  }
  return make_training_feed(job, std::move(source), start, rows);
}

std::unique_ptr<Feed> make_training_feed(const TrainJob& job,
                                         std::shared_ptr<const data::RecordSource> source,
                                         FeedPosition start, const std::vector<RowRange>& rows) {
  data::LoaderOptions options = loader_options(job, Use::training, rows);
  options.balanced = job.data.balanced;
  options.mix = job.data.mix;
  options.transform.jitter = job.data.jitter;
  options.transform.rand_augment = job.data.rand_augment;
  options.transform.erasing = job.data.erasing;
  options.start_epoch = static_cast<uint64_t>(start.epoch);
  options.start_position = static_cast<uint64_t>(start.index);
  return make_loader_feed(std::move(source), options);
}

std::unique_ptr<Feed> make_evaluation_feed(const TrainJob& job,
                                           std::shared_ptr<const data::RecordSource> source,
                                           const std::vector<RowRange>& rows) {
  return make_loader_feed(std::move(source), evaluation_options(job, rows));
}

std::vector<std::unique_ptr<Feed>> make_evaluation_views(
    const TrainJob& job, const std::shared_ptr<const data::RecordSource>& source, int crops) {
  data::LoaderOptions options = evaluation_options(job, {});
  const std::vector<data::CropView> views = data::crop_views(crops);
  if (views.size() > 1) {
    if (options.transform.crop != data::CropKind::centre) {
      fail_input("‹crops› {} cuts parts out of photographs; these images are taken whole.", crops);
    }
    options.prefetch = 1;
  }
  std::vector<std::unique_ptr<Feed>> feeds;
  for (const data::CropView& view : views) {
    options.transform.view = view;
    feeds.push_back(make_loader_feed(source, options));
  }
  return feeds;
}

std::vector<std::unique_ptr<Feed>> open_evaluation_views(const TrainJob& job, int crops) {
  if (job.evaluation_data != kSynthetic) {
    return make_evaluation_views(job, open_evaluation_source(job), crops);
  }
  if (crops != 1) fail_input("‹crops› is for photographs, which synthetic data has not.");
  std::vector<std::unique_ptr<Feed>> feeds;
  feeds.push_back(open_evaluation_data(job)->start());
  return feeds;
}

std::unique_ptr<EvaluationData> open_evaluation_data(const TrainJob& job,
                                                     const std::vector<RowRange>& rows) {
  if (job.evaluation_data == kSynthetic) {
    return std::make_unique<SyntheticEvaluationData>(batch_shape(job, rows), job.seed);
  }
  return std::make_unique<LoadedEvaluationData>(job, rows);
}

}  // namespace millrace::train
