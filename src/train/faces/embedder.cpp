#include "train/faces/embedder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "train/feed/feeds.h"
#include "train/job_state.h"
#include "train/weights.h"

namespace millrace {
namespace {

constexpr int64_t kSmallestBatch = 2;  // networks are checked as if they trained

}  // namespace

TrainJob embedding_job(TrainJob job) {
  job.options.classifier = false;
  job.options.batch = std::max(kSmallestBatch, job.options.batch);
  job.options.classes = int64_t{1} << 30;
  job.class_names.clear();
  return job;
}

Embedder::Embedder(const TrainJob& job, TrainingObserver& observer)
    : job_(embedding_job(job)), engine_(job_, Purpose::evaluation, observer) {
  engine_.start(job_.seed);
  JobState state(engine_);
  load_weights(state, weights_file(job_, observer));
  mirrored_.resize(static_cast<size_t>(batch_shape(job_).batch * image_values()));
}

int64_t Embedder::image_values() const {
  return job_.options.channels * job_.options.image * job_.options.image;
}

int64_t Embedder::features() const {
  return engine_.evaluation()->result("embedding").type.shape.back();
}

void Embedder::append(std::span<const float> images, size_t rows, std::vector<float>& embeddings) {
  if (job_.stop != nullptr && job_.stop->load()) {
    fail_job("Stopped before the whole data set was evaluated.");
  }
  std::vector<float> sum = run(images);
  mirror(images);
  const std::vector<float> second = run(mirrored_);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
  const auto width = static_cast<size_t>(features());
  for (size_t row = 0; row < rows; ++row) {
    float* values = sum.data() + row * width;
    double squares = 0;
    for (size_t i = 0; i < width; ++i) squares += static_cast<double>(values[i]) * values[i];
    const auto scale =
        static_cast<float>(1 / std::sqrt(std::max(squares, std::numeric_limits<double>::min())));
    for (size_t i = 0; i < width; ++i) embeddings.push_back(values[i] * scale);
  }
}

std::vector<float> Embedder::run(std::span<const float> images) {
  const Program& program = *engine_.evaluation();
  engine_.session().write_input(program, "images", images);
  engine_.session().run(program, StepState{});
  return engine_.session().result(program, "embedding");
}

void Embedder::mirror(std::span<const float> images) {
  const auto width = static_cast<ptrdiff_t>(job_.options.image);
  for (ptrdiff_t at = 0; at < static_cast<ptrdiff_t>(images.size()); at += width) {
    std::reverse_copy(images.begin() + at, images.begin() + at + width, mirrored_.begin() + at);
  }
}

}  // namespace millrace
