#include "train/evaluation.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "support.h"
#include "train/engine.h"
#include "train/feed/feeds.h"
#include "train/trainer.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

double figure(const Scores& scores, const char* metric) {
  return scores.sums.figure(metric_named(metric));
}

TEST(Scores, FollowTheDefinitions) {
  Scores scores(7);
  const std::vector<float> logits = {1, 2, 3, 0, 0, 0, 0,   // label 2: first
                                     7, 6, 5, 4, 3, 2, 1,   // label 4: fifth
                                     7, 6, 5, 4, 3, 2, 1};  // label 5: sixth
  const std::vector<int32_t> labels = {2, 4, 5};
  add_scores(scores, logits, labels, 7);
  EXPECT_EQ(scores.sums.samples(), 3);
  EXPECT_EQ(figure(scores, "top1"), 1 / 3.0);
  EXPECT_EQ(figure(scores, "top5"), 2 / 3.0);
  double expected = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + 4) - 3;
  double sum = 0;
  for (int i = 1; i <= 7; ++i) sum += std::exp(i);
  expected += std::log(sum) - 3 + std::log(sum) - 2;
  EXPECT_NEAR(figure(scores, "loss"), expected / 3, 1e-12);
}

// Class 0 has four samples, three right; class 1 one, wrong; class 2 none.
TEST(Scores, RecallCountsEveryClassAlike) {
  Scores scores(3);
  const std::vector<float> logits = {1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0};
  add_scores(scores, logits, std::vector<int32_t>{0, 0, 0, 0, 1}, 3);
  EXPECT_EQ(figure(scores, "recall"), (0.75 + 0) / 2);
  EXPECT_EQ(figure(scores, "top1"), 0.6);
}

// Each class by itself is what `loss` tells of its samples alone.
TEST(Scores, BalancedLossCountsEveryClassAlike) {
  const std::vector<float> logits = {2, 0, 1, 1, 3, 0, 0, 0.5f, 4};
  const std::vector<int32_t> labels = {0, 0, 2};
  Scores all(3), first(3), last(3);
  add_scores(all, logits, labels, 3);
  add_scores(first, std::vector<float>(logits.begin(), logits.begin() + 6),
             std::vector<int32_t>{0, 0}, 3);
  add_scores(last, std::vector<float>(logits.begin() + 6, logits.end()), std::vector<int32_t>{2},
             3);
  EXPECT_DOUBLE_EQ(figure(all, "balanced_loss"),
                   (figure(first, "loss") + figure(last, "loss")) / 2);
  EXPECT_NE(figure(all, "balanced_loss"), figure(all, "loss"));
}

TEST(Scores, DoNotOverflow) {
  Scores scores(2);
  add_scores(scores, std::vector<float>{1e4f, -1e4f}, std::vector<int32_t>{1}, 2);
  EXPECT_NEAR(figure(scores, "loss"), 2e4, 1e-6);
}

TEST(Scores, EqualLogitsAreNotAllRight) {
  Scores scores(10);
  const std::vector<float> logits(10 * 10, 0.5f);
  std::vector<int32_t> labels;
  for (int i = 0; i < 10; ++i) labels.push_back(i);
  add_scores(scores, logits, labels, 10);
  EXPECT_EQ(figure(scores, "top1"), 0.1);
  EXPECT_EQ(figure(scores, "top5"), 0.5);
}

TEST(Scores, NotANumberIsNeverRight) {
  Scores scores(2);
  add_scores(scores, std::vector<float>{NAN, 1}, std::vector<int32_t>{1}, 2);
  EXPECT_EQ(figure(scores, "top1"), 0);
}

TEST(Scores, PassOverRowsThatDoNotCount) {
  Scores scores(2);
  const std::vector<int32_t> labels = {0, kNoLabel, 1, kNoLabel};
  add_scores(scores, std::vector<float>{1, 0, 1, 0, 1, 0, 1, 0}, labels, 2);
  EXPECT_EQ(scores.sums.samples(), 2);
  EXPECT_EQ(figure(scores, "top1"), 0.5);
}

TEST(Scores, RefuseLabelsThatAreNoClass) {
  Scores scores(2);
  EXPECT_THROW(add_scores(scores, std::vector<float>{1, 0}, std::vector<int32_t>{2}, 2),
               InputError);
}

// A network with a margin head, its centres and synthetic images, all small.
class CentreClassifierTest : public DirectoryTest {
 protected:
  TrainJob face_job() const {
    TrainJob job = small_job();
    job.model = "mobilefacenet";
    job.options = models::default_options(job.model);
    job.options.batch = 4;
    job.options.image = 32;
    job.options.classes = 6;
    job.steps = 2;
    job.learning_rate.base = 0.01;
    return job;
  }

  TrainJob trained(graph::DataType storage) const {
    TrainJob job = face_job();
    job.options.head = graph::MarginHeadOptions{.subtrahend = 0.4, .scale = 30, .storage = storage};
    job.checkpoint = directory_ / "run";
    job.save_weights = directory_ / "w.safetensors";
    TrainingObserver silent;
    run_training(job, silent);
    return job;
  }

  // From the definition, in double: scaled cosines of the embeddings that the network itself gives.
  double expected_loss(const std::filesystem::path& weights, double scale) const {
    TrainJob job = face_job();
    job.options.classifier = false;
    job.evaluation_data = "synthetic";
    TrainingObserver silent;
    Engine engine(job, Purpose::evaluation, silent);
    engine.start(job.seed);
    JobState state(engine);
    load_weights(state, weights);
    const data::SafetensorsFile file(weights);
    const data::SafetensorsEntry& centres = file.at("head.centres");
    const auto feed = open_evaluation_data(job)->start();
    const auto batch = feed->next();
    engine.session().write_input(*engine.evaluation(), "images", batch->images);
    engine.session().run(*engine.evaluation(), kernels::StepState{});
    const std::vector<float> embeddings =
        engine.session().result(*engine.evaluation(), "embedding");
    const auto value = [&](int64_t i) {
      float number = 0;
      if (centres.dtype == "F32") {
        std::memcpy(&number, centres.data.data() + i * 4, 4);
      } else {
        std::memcpy(reinterpret_cast<char*>(&number) + 2, centres.data.data() + i * 2, 2);
      }
      return static_cast<double>(number);
    };
    const int64_t width = centres.shape.at(1);
    double loss = 0;
    for (int64_t row = 0; row < job.options.batch; ++row) {
      std::vector<double> logits;
      for (int64_t c = 0; c < job.options.classes; ++c) {
        double product = 0, left = 0, right = 0;
        for (int64_t i = 0; i < width; ++i) {
          const double x = embeddings.at(static_cast<size_t>(row * width + i));
          const double w = value(c * width + i);
          product += x * w;
          left += x * x;
          right += w * w;
        }
        logits.push_back(scale * product / std::sqrt(left * right));
      }
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      loss +=
          std::log(sum) - logits.at(static_cast<size_t>(batch->labels[static_cast<size_t>(row)]));
    }
    return loss / static_cast<double>(job.options.batch);
  }
};

TEST_F(CentreClassifierTest, ScoresAreScaledCosinesToTheTrainedCentres) {
  for (const graph::DataType storage : {graph::DataType::f32, graph::DataType::bf16}) {
    std::filesystem::remove_all(directory_ / "run");
    const TrainJob job = trained(storage);
    TrainJob evaluation = face_job();
    evaluation.evaluation_data = "synthetic";
    evaluation.checkpoint = job.checkpoint;
    TrainingObserver silent;
    const EvaluationResult result = run_evaluation(evaluation, silent);
    EXPECT_EQ(result.cosine_scale, 30);
    EXPECT_NEAR(result.report.figure("loss").value, expected_loss(job.save_weights, 30), 1e-3);

    evaluation.checkpoint.clear();
    evaluation.load_weights = job.save_weights;
    const EvaluationResult usual = run_evaluation(evaluation, silent);
    EXPECT_EQ(usual.cosine_scale, 64);
    EXPECT_NEAR(usual.report.figure("loss").value, expected_loss(job.save_weights, 64), 2e-3);
    evaluation.options.classes = 7;
    EXPECT_THAT(input_error_of([&] { run_evaluation(evaluation, silent); }),
                HasSubstr("has 6 class centres"));
  }
}

TEST_F(CentreClassifierTest, WeightsWithoutAClassifierAreNotScored) {
  TrainJob job = face_job();
  job.options.classifier = false;
  TrainingObserver silent;
  Engine engine(job, Purpose::evaluation, silent);
  engine.start(job.seed);
  save_weights(JobState(engine), directory_ / "backbone.safetensors", {});
  TrainJob evaluation = face_job();
  evaluation.evaluation_data = "synthetic";
  evaluation.load_weights = directory_ / "backbone.safetensors";
  EXPECT_THAT(input_error_of([&] { run_evaluation(evaluation, silent); }),
              HasSubstr("no classifier; measure it with ‹verification›"));
}

}  // namespace
}  // namespace millrace::train
