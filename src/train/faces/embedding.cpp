#include "train/faces/embedding.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "train/evaluation.h"
#include "train/faces/embedder.h"
#include "train/faces/verifier.h"
#include "train/feed/feeds.h"

namespace millrace::train {
namespace {

IdentificationReport measure_gallery(Embedder& embedder, const EvaluationData& data,
                                     TrainingObserver& observer) {
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
  tell_skipped(*feed, observer);
  return identify(embeddings, labels, features);
}

}  // namespace

FaceEvaluationResult evaluate_faces(const TrainJob& job, const FaceEvaluationRequest& request,
                                    TrainingObserver& observer) {
  const std::vector<PairsSet> sets = open_pairs(request.pairs);
  std::unique_ptr<EvaluationData> gallery;
  if (!request.identification.empty()) {
    TrainJob labelled = embedding_job(job);
    labelled.evaluation_data = request.identification;
    gallery = open_evaluation_data(labelled);
  }
  Embedder embedder(job, observer);
  const auto start = std::chrono::steady_clock::now();
  FaceEvaluationResult result;
  for (const PairsSet& set : sets) {
    const auto report = verify_set(embedder.job(), embedder.engine(), set, job.stop);
    if (!report) fail_job("Stopped before the whole data set was evaluated.");
    result.verification.emplace_back(set.name, *report);
    result.images += static_cast<int64_t>(set.file->pairs().images.size());
  }
  if (gallery) {
    result.identification = measure_gallery(embedder, *gallery, observer);
    result.images += result.identification->gallery + result.identification->probes;
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  result.seconds = elapsed.count();
  result.arena_bytes = embedder.engine().session().arena_bytes();
  result.breakdown = embedder.engine().evaluation()->breakdown;
  return result;
}

}  // namespace millrace::train
