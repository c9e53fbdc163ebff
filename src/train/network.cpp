#include "train/network.h"

#include "base/error.h"
#include "graph/operator_definition.h"
#include "models/models.h"
#include "passes/freeze.h"

namespace millrace::train {

namespace {

graph::OperatorId loss_of(const graph::Graph& network, std::string_view flags_are) {
  const graph::TensorId loss = network.find_tensor("loss");
  const graph::OperatorId id = loss == graph::kNone ? graph::kNone : network.tensor(loss).producer;
  const bool is_of_classifier = id != graph::kNone &&
                                graph::definition_of(network.op(id)).averages_samples &&
                                !graph::definition_of(network.op(id)).is_head;
  if (!is_of_classifier) {
    fail_input("{} for classifiers, not for ‹head›.", flags_are);
  }
  return id;
}

void weigh_classes(graph::Graph& network, const std::vector<double>& weights) {
  const graph::OperatorId loss = loss_of(network, "‹class_weights› is");
  network.op(loss).attributes.set("class_weights", weights);
}

// The loss of a mixed image is that of both labels, by their shares.
void mix_labels(graph::Graph& network, int64_t batch) {
  const graph::OperatorId loss = loss_of(network, "‹mixup› and ‹cutmix› are");
  graph::Tensor mixing;
  mixing.name = "mixing";
  mixing.type = {{batch, 2}, graph::DataType::s32};
  mixing.role = graph::Role::input;
  const graph::TensorId input = network.add_tensor(std::move(mixing));
  network.op(loss).inputs.push_back(input);
}

}  // namespace

graph::Graph network_of(const StepSettings& job) {
  graph::Graph network =
      job.network ? job.network(job.options) : models::build_model(job.model, job.options);
  passes::choose_trained(network, job.trained);
  if (!job.class_weights.empty()) weigh_classes(network, job.class_weights);
  if (job.second_labels) mix_labels(network, job.options.batch);
  return network;
}

}  // namespace millrace::train
