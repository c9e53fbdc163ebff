// Whole models against PyTorch: the same weights give the same logits, and ten steps of SGD the
// same losses. PyTorch runs when the test does; see tests/golden/README.md. Gradients, tensor by
// tensor, are tests/references' part.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/json.h"
#include "support.h"
#include "train/engine.h"

namespace millrace::train {
namespace {

constexpr double kTolerance = 1e-4;

struct Case {
  const char* model;
  int64_t image;
  int64_t batch;
  const char* options = "";
};

template <typename T>
std::vector<T> values_of(const data::SafetensorsFile& file, const std::string& name) {
  const data::SafetensorsEntry& entry = file.at(name);
  std::vector<T> values(entry.data.size() / sizeof(T));
  std::memcpy(values.data(), entry.data.data(), entry.data.size());
  return values;
}

TrainJob job_of(const Json& settings) {
  TrainJob job;
  job.model = settings.at("model").get<std::string>();
  job.options = models::default_options(job.model);
  job.options.batch = settings.at("batch").get<int64_t>();
  job.options.image = settings.at("image").get<int64_t>();
  job.options.classes = settings.at("classes").get<int64_t>();
  job.options.label_smoothing = settings.at("label_smoothing").get<double>();
  job.options.dropout = false;
  job.optimizer.momentum = settings.at("momentum").get<double>();
  job.optimizer.weight_decay = settings.at("weight_decay").get<double>();
  job.optimizer.decay_all = true;
  job.learning_rate.base = settings.at("lr").get<double>();
  job.convolution = kernels::ConvolutionAlgorithm::direct;
  return job;
}

class TrajectoryTest : public DirectoryTest {
 protected:
  void make(const Case& wanted) {
    const std::string command = fmt::format(
        "/usr/bin/python3 -B '{}/../golden/make_trajectory.py' --model {} --image {} --batch {} {} "
        "--output '{}'",
        MILLRACE_TEST_DATA, wanted.model, wanted.image, wanted.batch, wanted.options,
        directory_.string());
    ASSERT_EQ(std::system(command.c_str()), 0)
        << "PyTorch did not make the trajectory; it needs /usr/bin/python3 with the packages "
           "python3-torch and python3-torchvision (make deps).";
  }

  void follow(const Case& wanted) {
    ASSERT_NO_FATAL_FAILURE(make(wanted));
    const Json settings = Json::parse(read_text(directory_ / "trajectory.json"));
    const data::SafetensorsFile batches(directory_ / "batches.safetensors");
    const TrainJob job = job_of(settings);
    Engine engine(job, Purpose::training_and_evaluation, recorder_);
    engine.start(job.seed);
    JobState state(engine);
    load_weights(state, directory_ / "weights.safetensors");
    compare_outputs(engine, batches);
    compare_losses(engine, batches, job, settings.at("losses").get<std::vector<double>>());
  }

 private:
  static void write(runtime::Session& session, const compile::Program& program,
                    const data::SafetensorsFile& batches, size_t step) {
    const std::string name = "step" + std::to_string(step);
    session.write_input(program, "images", values_of<float>(batches, name + "/images"));
    session.write_input(program, "labels", values_of<int32_t>(batches, name + "/labels"));
  }

  // Everything that the evaluation gives and PyTorch has written.
  void compare_outputs(Engine& engine, const data::SafetensorsFile& batches) const {
    const data::SafetensorsFile file(directory_ / "logits.safetensors");
    const compile::Program& program = *engine.evaluation();
    write(engine.session(), program, batches, 0);
    engine.session().run(program, {});
    for (const data::SafetensorsEntry& entry : file.entries()) {
      const std::vector<float> expected = values_of<float>(file, entry.name);
      const std::vector<float> values = engine.session().result(program, entry.name);
      ASSERT_EQ(values.size(), expected.size());
      float largest = 0;
      for (const float value : expected) largest = std::max(largest, std::abs(value));
      ASSERT_GT(largest, 0);
      for (size_t i = 0; i < values.size(); ++i) {
        EXPECT_NEAR(values[i], expected[i], kTolerance * largest) << entry.name << " " << i;
      }
    }
  }

  static void compare_losses(Engine& engine, const data::SafetensorsFile& batches,
                             const TrainJob& job, const std::vector<double>& expected) {
    ASSERT_EQ(expected.size(), 10u);
    const compile::Program& program = *engine.training();
    double worst = 0;
    for (size_t step = 0; step < expected.size(); ++step) {
      write(engine.session(), program, batches, step);
      engine.session().run(program, {job.seed, static_cast<int64_t>(step),
                                     static_cast<float>(job.learning_rate.base)});
      const double loss = engine.session().scalar(program, "loss");
      EXPECT_NEAR(loss, expected[step], kTolerance * expected[step]) << "step " << step;
      worst = std::max(worst, std::abs(loss - expected[step]) / expected[step]);
    }
    RecordProperty("worst_relative_difference", fmt::format("{:.1e}", worst));
  }

  Recorder recorder_;
};

TEST_F(TrajectoryTest, alexnet) { follow({"alexnet", 64, 4}); }
TEST_F(TrajectoryTest, vgg16) { follow({"vgg16", 32, 2}); }
TEST_F(TrajectoryTest, vgg16_bn) { follow({"vgg16_bn", 32, 2}); }
TEST_F(TrajectoryTest, resnet18) { follow({"resnet18", 64, 4, "--lr 1e-3 --weight-decay 1"}); }
TEST_F(TrajectoryTest, iresnet18) { follow({"iresnet18", 32, 4}); }
TEST_F(TrajectoryTest, iresnet50) { follow({"iresnet50", 32, 4}); }
TEST_F(TrajectoryTest, mobilefacenet) { follow({"mobilefacenet", 64, 4}); }
TEST_F(TrajectoryTest, resnet50) { follow({"resnet50", 64, 4}); }

}  // namespace
}  // namespace millrace::train
