// A network of one's own, trained on pictures made in memory: which way do the stripes run?
#include <millrace/millrace.h>

#include <cmath>
#include <cstdio>
#include <random>

using namespace millrace;

constexpr int kSize = 16, kClasses = 4;

graph::Value stripes_network(graph::Builder& net, const models::ModelOptions& options) {
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = net.convolution(x, "conv1", {.channels = 16, .kernel = 3, .padding = 1});
  x = net.max_pool(net.relu(net.batch_norm(x, "bn1")), {.kernel = 2, .stride = 2});
  x = net.convolution(x, "conv2", {.channels = 32, .kernel = 3, .padding = 1, .bias = true});
  x = net.flatten(net.global_average_pool(net.relu(x)));
  return net.linear(x, "fc", {.features = options.classes});
}

std::vector<uint8_t> draw(std::vector<int64_t>& labels, int count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, 0.4);
  std::uniform_real_distribution<double> start(0, 6.28);
  std::vector<uint8_t> pixels;
  for (int i = 0; i < count; ++i) {
    labels.push_back(i % kClasses);
    const double angle = 0.785 * (i % kClasses), phase = start(random);
    for (int place = 0; place < kSize * kSize; ++place) {
      const double along = place % kSize * std::cos(angle) + place / kSize * std::sin(angle);
      const double value = std::sin(phase + 1.5 * along) + noise(random);
      pixels.push_back(static_cast<uint8_t>(std::clamp(127.5 + 60 * value, 0.0, 255.0)));
    }
  }
  return pixels;
}

int main() {
  api::Pictures seen = {.count = 1280, .height = kSize, .width = kSize, .channels = 1};
  const std::vector<uint8_t> pixels = draw(seen.labels, 1280, 1);
  seen.pixels = pixels;
  const api::Data data(seen, {.valid = 0.2, .augment = "none"});
  const api::Model net("stripes", stripes_network,
                       {.classes = kClasses, .image = kSize, .channels = 1});
  const api::Job job(net, data.train(), data.valid(), {.epochs = 2, .learning_rate = 0.03});
  const auto tell = [](const train::StepReport& report) {
    if (report.step % 10 == 1) std::printf("step %ld: %.4f\n", long(report.step), report.loss);
    return true;  // go on
  };
  const api::Run run = job.train({.on_step = tell});
  const train::EvaluationReport report = run.best().evaluate(*data.valid());
  std::printf("loss %.4f -> %.4f\n", run.result().losses.front(), run.result().losses.back());
  std::printf("right %.3f of %ld\n", report.figure("top1").value, long(report.samples));
}
