#include "train/faces/embedding.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "data/formats/face_pairs.h"
#include "data/image/transform.h"
#include "train/engine.h"
#include "train/feed/feeds.h"
#include "train/weights.h"

namespace millrace {
namespace {

constexpr int64_t kSmallestBatch = 2;  // networks are checked as if they trained

TrainJob embedding_job(TrainJob job) {
  job.options.classifier = false;
  job.options.batch = std::max(kSmallestBatch, job.options.batch);
  // Identities of an evaluation set need not be classes of the network.
  job.options.classes = int64_t{1} << 30;
  job.class_names.clear();
  return job;
}

// Runs batches of images through an evaluation program.
class Embedder {
 public:
  Embedder(const TrainJob& job, TrainingObserver& observer)
      : job_(embedding_job(job)), engine_(job_, Purpose::evaluation, observer) {
    engine_.start(job_.seed);
    JobState state(engine_);
    load_weights(state, weights_file(job_, observer));
    mirrored_.resize(static_cast<size_t>(batch_shape(job_).batch * image_values()));
  }

  Engine& engine() { return engine_; }
  const TrainJob& job() const { return job_; }
  int64_t batch() const { return job_.options.batch; }
  int64_t image_values() const {
    return job_.options.channels * job_.options.image * job_.options.image;
  }
  int64_t features() const { return engine_.evaluation()->result("embedding").type.shape.back(); }

  // Appends `rows` unit vectors for the first images of a full batch.
  void append(std::span<const float> images, size_t rows, std::vector<float>& embeddings) {
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

 private:
  std::vector<float> run(std::span<const float> images) {
    const Program& program = *engine_.evaluation();
    engine_.session().write_input(program, "images", images);
    engine_.session().run(program, StepState{});
    return engine_.session().result(program, "embedding");
  }

  void mirror(std::span<const float> images) {
    const auto width = static_cast<ptrdiff_t>(job_.options.image);
    for (ptrdiff_t at = 0; at < static_cast<ptrdiff_t>(images.size()); at += width) {
      std::reverse_copy(images.begin() + at, images.begin() + at + width, mirrored_.begin() + at);
    }
  }

  TrainJob job_;
  Engine engine_;
  std::vector<float> mirrored_;
};

VerificationReport measure_pairs(Embedder& embedder, const std::filesystem::path& path,
                                 const FacePairs& pairs) {
  Transformer transformer(evaluation_transform(embedder.job()));
  const auto values = static_cast<size_t>(embedder.image_values());
  const auto batch = static_cast<size_t>(embedder.batch());
  std::vector<float> images(batch * values, 0.0f);
  std::vector<float> embeddings;
  for (size_t first = 0; first < pairs.images.size(); first += batch) {
    const size_t rows = std::min(batch, pairs.images.size() - first);
    for (size_t row = 0; row < rows; ++row) {
      Sample sample;
      sample.bytes = pairs.images[first + row];
      try {
        transformer.apply(sample, Random(0, 0), images.data() + row * values);
      } catch (const BadData& error) {
        fail_input("Image {} of '{}' is bad: {}.", first + row, path.string(), error.what());
      }
    }
    embedder.append(images, rows, embeddings);
  }
  return verify_pairs(embeddings, pairs.same);
}

IdentificationReport measure_gallery(Embedder& embedder, const EvaluationData& data) {
  const std::unique_ptr<Feed> feed = data.start();
  std::vector<float> embeddings;
  std::vector<int32_t> labels;
  const auto features = static_cast<ptrdiff_t>(embedder.features());
  while (const std::optional<FeedBatch> batch = feed->next()) {
    std::vector<float> rows;
    embedder.append(batch->images, batch->labels.size(), rows);
    for (size_t row = 0; row < batch->labels.size(); ++row) {
      if (batch->labels[row] == kNoLabel) continue;
      const auto from = rows.begin() + static_cast<ptrdiff_t>(row) * features;
      embeddings.insert(embeddings.end(), from, from + features);
      labels.push_back(batch->labels[row]);
    }
  }
  return identify(embeddings, labels, features);
}

}  // namespace

FaceEvaluationResult evaluate_faces(const TrainJob& job, const FaceEvaluationRequest& request,
                                    TrainingObserver& observer) {
  std::optional<FacePairsFile> pairs;
  if (!request.pairs.empty()) pairs.emplace(request.pairs);
  std::unique_ptr<EvaluationData> gallery;
  if (!request.identification.empty()) {
    TrainJob labelled = embedding_job(job);
    labelled.evaluation_data = request.identification;
    gallery = open_evaluation_data(labelled);
  }
  Embedder embedder(job, observer);
  const auto start = std::chrono::steady_clock::now();
  FaceEvaluationResult result;
  if (pairs) {
    result.verification = measure_pairs(embedder, request.pairs, pairs->pairs());
    result.images += static_cast<int64_t>(pairs->pairs().images.size());
  }
  if (gallery) {
    result.identification = measure_gallery(embedder, *gallery);
    result.images += result.identification->gallery + result.identification->probes;
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = elapsed.count();
  result.arena_bytes = embedder.engine().session().arena_bytes();
  result.breakdown = embedder.engine().evaluation()->breakdown;
  return result;
}

}  // namespace millrace
