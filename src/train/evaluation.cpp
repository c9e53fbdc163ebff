#include "train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "data/formats/files.h"
#include "data/safetensors.h"
#include "train/engine.h"
#include "train/evaluation_model.h"
#include "train/feed/feeds.h"
#include "train/job_state.h"
#include "train/trainer.h"

namespace millrace::train {

void add_scores(Scores& scores, std::span<const float> logits, std::span<const int32_t> labels,
                int64_t classes, const RowImages& images) {
  const size_t image = images.values.size() / std::max<size_t>(1, labels.size());
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == kNoLabel) continue;
    const float* values = logits.data() + static_cast<int64_t>(row) * classes;
    const int64_t label = labels[row];
    if (label < 0 || label >= classes) {
      fail_input("Label {} is not one of the {} classes; raise ‹classes› or correct the data.",
                 label, classes);
    }
    const int64_t told = std::max_element(values, values + classes) - values;
    const double largest = values[told];
    double sum = 0;
    int64_t ahead = 0;
    for (int64_t i = 0; i < classes; ++i) {
      sum += std::exp(static_cast<double>(values[i]) - largest);
      ahead += values[i] > values[label] || (values[i] == values[label] && i < label) ? 1 : 0;
    }
    if (!std::isfinite(sum)) ahead = classes;
    const double loss = std::log(sum) + largest - static_cast<double>(values[label]);
    const ScoredSample sample = {.label = label, .told = told, .ahead = ahead, .loss = loss};
    scores.sums.add(sample);
    if (scores.worst != nullptr && image > 0) {
      scores.worst->look(images.first_index + static_cast<int64_t>(row), sample, 1 / sum,
                         images.values.subspan(row * image, image));
    }
    if (scores.kept == nullptr) continue;
    scores.kept->logits.insert(scores.kept->logits.end(), values, values + classes);
    scores.kept->labels.push_back(labels[row]);
  }
}

void share_statistics(Engine& engine) {
  const auto& stages = engine.graphs().plan().stages;
  const bool alone =
      std::all_of(stages.begin(), stages.end(),
                  [](const parallel::Placement& stage) { return stage.size() == 1; });
  if (alone) return;
  JobState state(engine);
  std::vector<float> values;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    if (state.tensors()[i].role != graph::Role::buffer) continue;
    state.read(i, values);
    state.write(i, values);
  }
}

void tell_passed_over(const Feed& feed, TrainingObserver& observer) {
  const std::vector<std::string> files = feed.passed_over();
  if (!files.empty()) observer.on_message(Severity::warning, data::describe_passed_over(files));
}

void tell_skipped(const Feed& feed, TrainingObserver& observer) {
  if (feed.skipped() == 0) return;
  std::string text =
      fmt::format("{} bad record{} did not count:", feed.skipped(), feed.skipped() == 1 ? "" : "s");
  for (const std::string& sentence : feed.skipped_records()) text += "\n  " + on_one_line(sentence);
  observer.on_message(Severity::warning, text);
}

std::vector<FeedBatch> next_of(const std::vector<Feed*>& views) {
  std::vector<FeedBatch> batches;
  for (Feed* view : views) {
    std::optional<FeedBatch> batch = view->next();
    if (!batch) return {};
    batches.push_back(std::move(*batch));
  }
  return batches;
}

namespace {

std::optional<EvaluationReport> evaluate_views(Engine& engine, const std::vector<Feed*>& views,
                                               const std::atomic<bool>* stop, KeptLogits* kept,
                                               WorstSamples* worst) {
  const auto start = std::chrono::steady_clock::now();
  share_statistics(engine);
  Scores scores(engine.classes());
  scores.kept = kept;
  scores.worst = worst;
  while (true) {
    if (engine.any(stop != nullptr && stop->load())) return {};
    const std::vector<FeedBatch> batches = next_of(views);
    if (batches.empty()) break;
    engine.evaluate(batches, scores);
  }
  engine.finish_scores(scores);
  EvaluationReport report;
  report.skipped = views.front()->skipped();
  report.samples = scores.sums.samples();
  if (report.samples == 0) fail_input("The evaluation data set is empty.");
  for (const MetricDefinition& metric : metrics()) {
    report.figures.push_back({std::string(metric.name), scores.sums.figure(metric)});
  }
  if (worst != nullptr) {
    report.worst = worst->take([&](int64_t index) { return views.front()->place(index); });
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace

std::optional<EvaluationReport> evaluate(Engine& engine, Feed& feed, const std::atomic<bool>* stop,
                                         KeptLogits* kept, WorstSamples* worst) {
  return evaluate_views(engine, {&feed}, stop, kept, worst);
}

std::optional<EvaluationReport> evaluate(Engine& engine,
                                         const std::vector<std::unique_ptr<Feed>>& views,
                                         const std::atomic<bool>* stop, KeptLogits* kept,
                                         WorstSamples* worst) {
  std::vector<Feed*> feeds;
  for (const auto& view : views) feeds.push_back(view.get());
  return evaluate_views(engine, feeds, stop, kept, worst);
}

void save_logits(const std::filesystem::path& path, const KeptLogits& kept,
                 const std::string& model) {
  const auto samples = static_cast<int64_t>(kept.labels.size());
  const auto classes = static_cast<int64_t>(kept.logits.size() / kept.labels.size());
  const data::SafetensorsTensor tensors[] = {
      {"logits", "F32", {samples, classes}, kept.logits.data(), kept.logits.size() * sizeof(float)},
      {"labels", "I32", {samples}, kept.labels.data(), kept.labels.size() * sizeof(int32_t)}};
  data::write_safetensors(path, tensors, {{"model", model}});
}

EvaluationResult run_evaluation(const TrainJob& given, TrainingObserver& observer, KeptLogits* kept,
                                int crops) {
  const std::vector<std::unique_ptr<Feed>> views = open_evaluation_views(given, crops);
  EvaluationModel model(given, observer);
  Engine& engine = model.engine();
  tell_passed_over(*views.front(), observer);
  std::optional<WorstSamples> worst;
  if (given.worst_samples > 0) worst.emplace(model.job());
  const auto report = evaluate(engine, views, given.stop, kept, worst ? &*worst : nullptr);
  if (!report) fail_job("Stopped before the whole data set was evaluated.");
  tell_skipped(*views.front(), observer);
  return {*report, engine.device().threads(), engine.session().arena_bytes(),
          engine.evaluation()->breakdown, model.cosine_scale()};
}

}  // namespace millrace::train
