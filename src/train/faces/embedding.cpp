#include "train/faces/embedding.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "data/formats/face_pairs.h"
#include "data/image/transform.h"
#include "train/faces/embedder.h"
#include "train/feed/feeds.h"

namespace millrace {
namespace {

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
