// Networks and data of the caller's own.
#include <gmock/gmock.h>

#include <algorithm>

#include "graph/builder.h"
#include "memory_feed.h"
#include "support.h"
#include "train/checkpoint.h"
#include "train/trainer.h"

namespace millrace::train {
namespace {

using ::testing::HasSubstr;

constexpr BatchShape kShape = {.batch = 4, .channels = 1, .height = 2, .width = 2, .classes = 3};

// Image i holds i in every pixel and has the label i % 3.
std::shared_ptr<MemoryData> numbered(int count) {
  auto data = std::make_shared<MemoryData>();
  for (int i = 0; i < count; ++i) {
    data->images.insert(data->images.end(), 4, static_cast<float>(i));
    data->labels.push_back(i % 3);
  }
  return data;
}

graph::Graph small_network() {
  graph::Builder net;
  graph::Value x = net.image(kShape.batch, kShape.channels, kShape.height, kShape.width);
  x = net.relu(net.linear(net.flatten(x), "hidden", {.features = 8}));
  net.classify(net.linear(x, "out", {.features = kShape.classes}));
  return net.take();
}

class WorkloadTest : public DirectoryTest {
 protected:
  WorkloadTest() {
    job_.steps = 6;
    job_.threads = 1;
    job_.learning_rate.base = 0.01;
    work_.training = [this](FeedPosition start) {
      starts_.push_back(start);
      return make_memory_feed(data_, kShape, 1, start);
    };
  }

  std::shared_ptr<const MemoryData> data_ = numbered(10);
  TrainJob job_;
  Workload work_ = {small_network()};
  std::vector<FeedPosition> starts_;
  Recorder recorder_;
};

TEST_F(WorkloadTest, TrainsEvaluatesAndReports) {
  work_.evaluation = [&] { return make_memory_evaluation_feed(data_, kShape); };
  job_.steps = 0;
  job_.epochs = 3;
  const TrainResult result = run_training(job_, work_, recorder_);
  EXPECT_EQ(result.total_steps, 6);
  EXPECT_EQ(recorder_.starts.front().batch, kShape.batch);
  EXPECT_EQ(recorder_.steps.back().epoch, 2);
  ASSERT_TRUE(result.evaluation);
  EXPECT_EQ(result.evaluation->samples, 10);
}

TEST_F(WorkloadTest, ResumesWithTheSameBits) {
  job_.save_weights = directory_ / "straight";
  run_training(job_, work_, recorder_);
  job_.save_weights.clear();
  job_.checkpoint = directory_ / "run";
  std::atomic<bool> stop = false;
  job_.stop = &stop;
  recorder_.after_step = [&](int64_t step) { stop = step == 3; };
  run_training(job_, work_, recorder_);
  stop = false;
  job_.resume = true;
  job_.save_weights = directory_ / "resumed";
  run_training(job_, work_, recorder_);
  EXPECT_EQ(starts_.back(), (FeedPosition{1, 4}));
  EXPECT_TRUE(read_text(directory_ / "straight") == read_text(directory_ / "resumed"));
}

TEST_F(WorkloadTest, RefusesANetworkThatIsNoClassifier) {
  graph::Builder net;
  net.linear(net.flatten(net.image(4, 1, 2, 2)), "out", {.features = 3});
  work_.network = net.take();
  EXPECT_THAT(input_error_of([&] { run_training(job_, work_, recorder_); }),
              HasSubstr("Builder::classify"));
}

TEST_F(WorkloadTest, RefusesEpochsOfDataWithoutAny) {
  work_.training = [](FeedPosition start) { return make_synthetic_feed(kShape, 1, start); };
  job_.steps = 0;
  job_.epochs = 1;
  EXPECT_THAT(input_error_of([&] { run_training(job_, work_, recorder_); }), HasSubstr("‹epochs›"));
}

TEST_F(WorkloadTest, DataThatEndsIsAFailedJob) {
  work_.training = [&](FeedPosition) { return make_memory_evaluation_feed(data_, kShape); };
  EXPECT_THROW(run_training(job_, work_, recorder_), JobError);
}

// Weights of zero and a rate that changes nothing: every batch has the loss of a guess.
TEST_F(WorkloadTest, ANetworkThatCollapsedEndsTheJobWithTheLayer) {
  graph::Builder net;
  const graph::Value x = net.flatten(net.image(kShape.batch, 1, 2, 2));
  net.classify(net.linear(
      x, "dead",
      {.features = 3, .start = {graph::WeightStart::Kind::normal, 0}, .zero_bias = true}));
  work_.network = net.take();
  job_.learning_rate.base = 1e-30;
  job_.steps = 1000;
  try {
    run_training(job_, work_, recorder_);
    FAIL() << "the job went on";
  } catch (const JobError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has collapsed, layer '"));
    EXPECT_THAT(error.what(), HasSubstr("since step 1"));
  }
  EXPECT_LT(recorder_.steps.size(), 110u);
}

}  // namespace
}  // namespace millrace::train
