// A network of one's own, trained on images made in memory: which way do the stripes run?
#include <millrace/millrace.h>

#include <cmath>
#include <cstdio>
#include <random>

using namespace millrace;

constexpr BatchShape kShape = {.batch = 32, .channels = 1, .height = 16, .width = 16, .classes = 4};

Graph stripes_network() {
  Builder net;
  Value x = net.image(kShape.batch, kShape.channels, kShape.height, kShape.width);
  x = net.convolution(x, "conv1", {.channels = 16, .kernel = 3, .padding = 1});
  x = net.max_pool(net.relu(net.batch_norm(x, "bn1")), {.kernel = 2, .stride = 2});
  x = net.convolution(x, "conv2", {.channels = 32, .kernel = 3, .padding = 1, .bias = true});
  x = net.flatten(net.global_average_pool(net.relu(x)));
  net.classify(net.linear(x, "fc", {.features = kShape.classes}));
  return net.take();
}

std::shared_ptr<const MemoryData> stripes(size_t count, unsigned seed) {
  auto data = std::make_shared<MemoryData>();
  std::mt19937 random(seed);
  std::normal_distribution<float> noise(0, 0.5f);
  std::uniform_real_distribution<double> start(0, 6.28);
  for (size_t i = 0; i < count; ++i) {
    const auto label = static_cast<int32_t>(i % 4);
    const double angle = 0.785 * label, phase = start(random);
    for (int y = 0; y < kShape.height; ++y) {
      for (int x = 0; x < kShape.width; ++x) {
        const double wave = std::sin(phase + 1.5 * (x * std::cos(angle) + y * std::sin(angle)));
        data->images.push_back(static_cast<float>(wave) + noise(random));
      }
    }
    data->labels.push_back(label);
  }
  return data;
}

struct Printer : TrainingObserver {
  void on_step(const StepReport& report) override {
    if (report.step % 10 == 1) std::printf("step %ld: %.4f\n", long(report.step), report.loss);
  }
};

int main() {
  const auto seen = stripes(1024, 1), unseen = stripes(250, 2);
  Printer printer;
  TrainJob job;
  job.epochs = 2;
  job.learning_rate.base = 0.03;
  Workload work = {stripes_network()};
  work.training = [&](FeedPosition at) { return make_memory_feed(seen, kShape, 1, at); };
  work.evaluation = [&] { return make_memory_evaluation_feed(unseen, kShape); };
  const TrainResult result = run_training(job, work, printer);
  std::printf("loss %.4f -> %.4f\n", result.losses.front(), result.losses.back());
  std::printf("right %.3f of %ld\n", result.evaluation->top1, long(result.evaluation->samples));
}
