#include "train/faces/embedder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "train/feed/feeds.h"
#include "train/job_state.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

constexpr int64_t kSmallestBatch = 2;  // networks are checked as if they trained

}  // namespace

void mirror_images(std::span<const float> images, int64_t width, std::vector<float>& mirrored) {
  mirrored.resize(images.size());
  for (ptrdiff_t at = 0; at < static_cast<ptrdiff_t>(images.size()); at += width) {
    std::reverse_copy(images.begin() + at, images.begin() + at + width, mirrored.begin() + at);
  }
}

void append_unit_sums(std::span<const float> first, std::span<const float> second, size_t rows,
                      int64_t features, std::vector<float>& embeddings) {
  const auto width = static_cast<size_t>(features);
  std::vector<float> sum(width);
  for (size_t row = 0; row < rows; ++row) {
    double squares = 0;
    for (size_t i = 0; i < width; ++i) {
      sum[i] = first[row * width + i] + second[row * width + i];
      squares += static_cast<double>(sum[i]) * sum[i];
    }
    const auto scale =
        static_cast<float>(1 / std::sqrt(std::max(squares, std::numeric_limits<double>::min())));
    for (const float value : sum) embeddings.push_back(value * scale);
  }
}

TrainJob embedding_job(TrainJob job) {
  job.options.classifier = false;
  job.options.batch = std::max(kSmallestBatch, job.options.batch);
  job.options.classes = int64_t{1} << 30;
  job.class_names.clear();
  return job;
}

Embedder::Embedder(const TrainJob& job, TrainingObserver& observer)
    : job_(embedding_job(job)), engine_(job_, Purpose::evaluation, observer) {
  engine_.start({});
  JobState state(engine_);
  load_weights(state, weights_file(job_, observer));
}

int64_t Embedder::features() const {
  return engine_.evaluation()->result("embedding").type.shape.back();
}

void Embedder::append(std::span<const float> images, size_t rows, std::vector<float>& embeddings) {
  if (job_.stop != nullptr && job_.stop->load()) {
    fail_job("Stopped before the whole data set was evaluated.");
  }
  const std::vector<float> plain = run(images);
  mirror_images(images, job_.options.image, mirrored_);
  append_unit_sums(plain, run(mirrored_), rows, features(), embeddings);
}

std::vector<float> Embedder::run(std::span<const float> images) {
  const compile::Program& program = *engine_.evaluation();
  engine_.session().write_input(program, "images", images);
  engine_.session().run(program, kernels::StepState{});
  return engine_.session().result(program, "embedding");
}

}  // namespace millrace::train
