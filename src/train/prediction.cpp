#include "train/prediction.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "data/formats/files.h"
#include "train/evaluation.h"
#include "train/evaluation_model.h"
#include "train/faces/embedder.h"
#include "train/feed/feeds.h"

namespace millrace::train {
namespace {

// Goes through the files in batches: `work` gets each and which of its rows are images.
UnreadFiles each_batch(
    const TrainJob& job, const std::vector<std::filesystem::path>& files, int crops,
    const std::function<void(std::span<const FeedBatch>, const std::vector<size_t>&)>& work) {
  if (files.empty()) fail_input("There are no images to look at.");
  const auto feeds = make_evaluation_views(job, data::open_files(files), crops);
  std::vector<Feed*> views;
  for (const auto& feed : feeds) views.push_back(feed.get());
  for (auto batches = next_of(views); !batches.empty(); batches = next_of(views)) {
    if (job.stop != nullptr && job.stop->load()) fail_job("Stopped before all images were seen.");
    const std::span<const int32_t> labels = batches.front().labels;
    std::vector<size_t> rows;
    for (size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] != kNoLabel) rows.push_back(row);
    }
    work(batches, rows);
  }
  return {feeds.front()->skipped(), feeds.front()->skipped_records()};
}

void require_numbers(std::span<const float> values, const std::filesystem::path& file) {
  if (std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
    return;
  }
  fail_job(
      "The network's values for '{}' are not finite; its weights are damaged, or their training "
      "diverged.",
      printable(file.string()));
}

}  // namespace

UnreadFiles predict_files(const TrainJob& job, const std::vector<std::filesystem::path>& files,
                          TrainingObserver& observer, const EachFile& each, int crops) {
  EvaluationModel model(job, observer);
  const auto classes = static_cast<size_t>(model.job().options.classes);
  size_t first = 0;
  return each_batch(model.job(), files, crops,
                    [&](std::span<const FeedBatch> views, const std::vector<size_t>& rows) {
                      KeptLogits kept;
                      Scores scores(model.engine().classes());
                      scores.kept = &kept;
                      model.engine().evaluate(views, scores);
                      for (size_t i = 0; i < rows.size(); ++i) {
                        const auto logits = std::span(kept.logits).subspan(i * classes, classes);
                        require_numbers(logits, files[first + rows[i]]);
                        each(first + rows[i], logits);
                      }
                      first += views.front().labels.size();
                    });
}

UnreadFiles embed_files(const TrainJob& job, const std::vector<std::filesystem::path>& files,
                        TrainingObserver& observer, const EachFile& each) {
  Embedder embedder(job, observer);
  const auto features = static_cast<size_t>(embedder.features());
  size_t first = 0;
  return each_batch(embedder.job(), files, 1,
                    [&](std::span<const FeedBatch> views, const std::vector<size_t>& rows) {
                      const FeedBatch& batch = views.front();
                      std::vector<float> embeddings;
                      embedder.append(batch.images, batch.labels.size(), embeddings);
                      for (const size_t row : rows) {
                        const auto own = std::span(embeddings).subspan(row * features, features);
                        require_numbers(own, files[first + row]);
                        each(first + row, own);
                      }
                      first += batch.labels.size();
                    });
}

std::vector<ClassShare> best_classes(std::span<const float> logits, int64_t count) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = std::min(static_cast<size_t>(count), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
                    [&](int64_t a, int64_t b) {
                      const float first = logits[static_cast<size_t>(a)];
                      const float second = logits[static_cast<size_t>(b)];
                      return first != second ? first > second : a < b;
                    });
  const double largest = logits[static_cast<size_t>(order[0])];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<ClassShare> best;
  for (size_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<size_t>(order[i])];
    best.push_back({order[i], std::exp(logit - largest) / sum});
  }
  return best;
}

}  // namespace millrace::train
