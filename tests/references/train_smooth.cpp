// train_smooth: `millrace train` with a network of its own, for optimizers.py. Takes the flags of a
// job, --load-weights and --checkpoint. The network has convolutions with and without bias, a batch
// norm and a linear layer, and tanh instead of ReLU: without kinks two computations of the same
// training stay together for as long as their optimizers do the same.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <cstdlib>

#include "cli/job_flags.h"
#include "graph/builder.h"
#include "train/feed/feeds.h"
#include "train/trainer.h"

namespace millrace {
namespace {

graph::Graph smooth_network(const models::ModelOptions& options) {
  graph::Builder net;
  graph::Value x = net.image(options.batch, options.channels, options.image, options.image);
  x = net.convolution(x, "conv1", {.channels = 16, .kernel = 3, .padding = 1});
  x = net.average_pool(net.tanh(net.batch_norm(x, "bn1")), {.kernel = 2, .stride = 2});
  x = net.convolution(x, "conv2", {.channels = 12, .kernel = 3, .padding = 1, .bias = true});
  net.classify(net.linear(net.flatten(net.tanh(x)), "fc", {.features = options.classes}),
               {.label_smoothing = options.label_smoothing});
  return net.take();
}

int run(int count, char** words) {
  CLI::App command;
  cli::JobFlags flags;
  flags.model = "fashion_cnn";  // for the usual classes and channels
  std::string load_weights, checkpoint;
  cli::add_model_flags(command, flags);
  cli::add_data_flags(command, flags);
  cli::add_training_flags(command, flags);
  cli::add_device_flags(command, flags);
  command.add_option("--load-weights", load_weights)->required();
  command.add_option("--checkpoint", checkpoint)->required();
  CLI11_PARSE(command, count, words);
  train::TrainJob job = cli::to_job(flags);
  job.load_weights = load_weights;
  job.checkpoint = checkpoint;
  train::Workload work = {smooth_network(job.options)};
  work.training = [&job](train::FeedPosition start) {
    return train::make_training_feed(job, start);
  };
  train::TrainingObserver silent;
  train::run_training(job, work, silent);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace millrace

int main(int count, char** words) {
  try {
    return millrace::run(count, words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return EXIT_FAILURE;
  }
}
