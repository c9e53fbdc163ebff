#include "train/workload.h"

#include <algorithm>

#include "base/error.h"
#include "train/feed/feeds.h"

namespace millrace::train {
namespace {

constexpr std::string_view kOwn = "own";

const graph::Tensor& input_of(const graph::Graph& network, std::string_view name) {
  const graph::TensorId id = network.find_tensor(name);
  if (id == graph::kNone || network.tensor(id).role != graph::Role::input) {
    fail_input(
        "The network has no input '{}'; build it with Builder::image and end it with "
        "Builder::classify.",
        name);
  }
  return network.tensor(id);
}

const graph::Tensor& result_of(const graph::Graph& network, std::string_view name) {
  for (const graph::TensorId id : network.results()) {
    if (network.tensor(id).name == name) return network.tensor(id);
  }
  fail_input("The network has no result '{}'; end it with Builder::classify.", name);
}

}  // namespace

DataSource data_of(const TrainJob& job) {
  DataSource source;
  source.training = [&job](FeedPosition start, const std::vector<RowRange>& rows) {
    return make_training_feed(job, start, rows);
  };
  if (job.evaluation_data.empty()) return source;
  source.evaluation = [&job](const std::vector<RowRange>& rows) {
    const std::shared_ptr<const EvaluationData> data = open_evaluation_data(job, rows);
    return [data] { return data->start(); };
  };
  return source;
}

DataSource data_of(const TrainJob& job, const Workload& work) {
  const auto part = [&job](std::unique_ptr<Feed> whole, const std::vector<RowRange>& rows) {
    return make_row_feed(std::move(whole), batch_shape(job, rows));
  };
  DataSource source;
  source.training = [&work, part](FeedPosition start, const std::vector<RowRange>& rows) {
    return part(work.training(start), rows);
  };
  if (!work.evaluation) return source;
  source.evaluation = [&work, part](const std::vector<RowRange>& rows) {
    return [&work, part, rows] { return part(work.evaluation(), rows); };
  };
  return source;
}

TrainJob job_for(TrainJob job, const Workload& work) {
  if (!work.training) fail_input("The workload has no training data.");
  const graph::Shape& images = input_of(work.network, "images").type.shape;
  input_of(work.network, "labels");
  result_of(work.network, "loss");
  job.options.batch = images.at(0);
  job.options.channels = images.at(1);
  job.options.image = images.at(2);
  job.options.classes = result_of(work.network, "logits").type.shape.at(1);
  if (job.model.empty()) job.model = kOwn;
  job.data.source = kOwn;
  job.evaluation_data = work.evaluation ? kOwn : "";
  return job;
}

}  // namespace millrace::train
