#include "train/restore_norms.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "data/record_source.h"
#include "data/weights/weights_file.h"
#include "models/onnx/model.h"
#include "train/trainer.h"

namespace millrace::train {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr double kKept = 0.9;  // of the running statistics in each step
constexpr int64_t kMostAtOnce = 32;
constexpr const char* kNormParts[] = {".weight", ".bias", ".running_mean", ".running_var"};

// A convolution that may hide a normalisation, and the name of the one to restore.
struct FoldedNorm {
  size_t node = 0;
  std::string name = {};
  std::vector<float> bias = {};
};

const models::onnx::TensorData* constant_named(const models::onnx::Model& model,
                                               const std::string& name) {
  const auto found =
      std::find_if(model.initializers.begin(), model.initializers.end(),
                   [&](const models::onnx::TensorData& tensor) { return tensor.name == name; });
  return found == model.initializers.end() ? nullptr : &*found;
}

bool is_normalised(const models::onnx::Model& model, const std::string& output) {
  return std::any_of(model.nodes.begin(), model.nodes.end(), [&](const models::onnx::Node& node) {
    return node.type == "BatchNormalization" && !node.inputs.empty() && node.inputs[0] == output;
  });
}

std::vector<FoldedNorm> find_folded(const models::onnx::Model& model) {
  std::vector<FoldedNorm> found;
  for (size_t i = 0; i < model.nodes.size(); ++i) {
    const models::onnx::Node& node = model.nodes[i];
    if (node.type != "Conv" || node.inputs.size() < 3 || node.outputs.size() != 1) continue;
    const models::onnx::TensorData* bias = constant_named(model, node.inputs[2]);
    if (bias == nullptr || is_normalised(model, node.outputs[0])) continue;
    found.push_back({i, fmt::format("restored_norm_{}", found.size()), bias->numbers()});
  }
  return found;
}

models::onnx::Node norm_node(const FoldedNorm& norm, std::string input, std::string output) {
  using Kind = models::onnx::NodeAttribute::Kind;
  models::onnx::Node node = {.type = "BatchNormalization",
                             .name = norm.name,
                             .inputs = {std::move(input)},
                             .outputs = {std::move(output)}};
  for (const char* part : kNormParts) node.inputs.push_back(norm.name + part);
  node.attributes = {{.name = "epsilon", .kind = Kind::number, .number = kEpsilon},
                     {.name = "momentum", .kind = Kind::number, .number = kKept}};
  return node;
}

void add_constants(models::onnx::Model& model, const FoldedNorm& norm,
                   const std::vector<std::vector<float>>& values) {
  const graph::Shape shape = {static_cast<int64_t>(norm.bias.size())};
  for (size_t i = 0; i < std::size(kNormParts); ++i) {
    model.initializers.push_back(
        models::onnx::TensorData::of(norm.name + kNormParts[i], shape, values[i]));
  }
}

// Leaves out what the outputs do not need.
void drop_unread(models::onnx::Model& model) {
  std::set<std::string> wanted;
  for (const models::onnx::ValueInfo& output : model.outputs) wanted.insert(output.name);
  std::vector<models::onnx::Node> kept;
  for (auto node = model.nodes.rbegin(); node != model.nodes.rend(); ++node) {
    const bool is_wanted =
        std::any_of(node->outputs.begin(), node->outputs.end(),
                    [&](const std::string& output) { return wanted.contains(output); });
    if (!is_wanted) continue;
    wanted.insert(node->inputs.begin(), node->inputs.end());
    kept.push_back(std::move(*node));
  }
  std::reverse(kept.begin(), kept.end());
  model.nodes = std::move(kept);
}

// The network with normalisations beside it that see what its convolutions give, and are all that
// its "classes" are made of: training measures, and changes nothing that is measured.
models::onnx::Model measuring_model(const models::onnx::Model& model,
                                    const std::vector<FoldedNorm>& folded) {
  using Kind = models::onnx::NodeAttribute::Kind;
  models::onnx::Model made = model;
  models::onnx::Node all = {
      .type = "Concat", .name = "all_means", .inputs = {}, .outputs = {"all_means"}};
  all.attributes = {{.name = "axis", .kind = Kind::integer, .integer = 1}};
  for (const FoldedNorm& norm : folded) {
    const std::string& seen = model.nodes[norm.node].outputs[0];
    const std::string normalised = norm.name + "_out", mean = norm.name + "_mean";
    made.nodes.push_back(norm_node(norm, seen, normalised));
    made.nodes.push_back(
        {.type = "GlobalAveragePool", .name = mean, .inputs = {normalised}, .outputs = {mean}});
    all.inputs.push_back(mean);
    const std::vector<float> zeros(norm.bias.size(), 0.0f), ones(norm.bias.size(), 1.0f);
    add_constants(made, norm, {ones, zeros, zeros, zeros});
  }
  made.nodes.push_back(std::move(all));
  made.nodes.push_back(
      {.type = "Flatten", .name = "logits", .inputs = {"all_means"}, .outputs = {"measured"}});
  made.outputs = {{.name = "measured"}};
  made.metadata.clear();
  drop_unread(made);
  return made;
}

// Trains the measuring network without changing it, and writes its tensors to `weights`.
void measure_norms(TrainJob job, const std::filesystem::path& model,
                   const std::filesystem::path& weights, int64_t channels, int64_t steps,
                   TrainingObserver& observer) {
  constexpr double kNothing = 1e-30;  // added to a weight, it is lost
  job.model = models::kOnnxPrefix + model.string();
  job.options.classes = channels;
  job.options.dropout = false;
  job.load_weights.clear();
  job.checkpoint.clear();
  job.evaluation_data.clear();
  job.class_names.clear();
  job.save_weights = weights;
  job.steps = steps;
  job.epochs = 0;
  job.optimizer.weight_decay = 0;
  job.learning_rate = {};
  job.learning_rate.base = kNothing;
  job.data.augment = "none";
  run_training(job, observer);
}

std::vector<float> values_of(const data::WeightsFile& file, const std::string& name) {
  const data::WeightTensor* tensor = file.find(name);
  if (tensor == nullptr) fail_job("The measured statistics have no '{}'.", name);
  std::vector<float> values(static_cast<size_t>(tensor->elements()));
  data::read_values(*tensor, values);
  return values;
}

// A normalisation in place of the convolution's bias; `share` of the statistics is measured.
void put_back(models::onnx::Model& model, const FoldedNorm& norm, const data::WeightsFile& measured,
              double share) {
  std::vector<float> mean = values_of(measured, norm.name + ".running_mean");
  std::vector<float> variance = values_of(measured, norm.name + ".running_var");
  std::vector<float> scale(mean.size()), bias(mean.size());
  for (size_t i = 0; i < mean.size(); ++i) {
    variance[i] = static_cast<float>(variance[i] / share);
    scale[i] = static_cast<float>(std::sqrt(variance[i] + kEpsilon));
    bias[i] = static_cast<float>(mean[i] / share);
    mean[i] = bias[i] - norm.bias[i];
  }
  add_constants(model, norm, {scale, bias, mean, variance});
}

}  // namespace

int64_t restore_norms(const TrainJob& job, const std::filesystem::path& source,
                      const std::filesystem::path& target, int64_t pictures,
                      TrainingObserver& observer) {
  const models::onnx::ModelFile file(source);
  const std::vector<FoldedNorm> folded = find_folded(file.model());
  if (folded.empty()) {
    fail_input("'{}' has no convolution with a bias that a norm could be restored behind.",
               source.string());
  }
  if (job.data.source != "synthetic") {
    const auto there =
        static_cast<int64_t>(data::open_source(job.data.source, data::Split::train)->count());
    if (pictures > there) {
      fail_input("‹restore_norms› is {}, but '{}' has {} pictures.", pictures, job.data.source,
                 there);
    }
  }
  const std::filesystem::path measuring = target.string() + ".measuring.onnx";
  const std::filesystem::path weights = target.string() + ".measured.safetensors";
  const auto clear = [&] {
    std::error_code ignored;
    std::filesystem::remove(measuring, ignored);
    std::filesystem::remove(weights, ignored);
  };
  int64_t channels = 0;
  for (const FoldedNorm& norm : folded) channels += static_cast<int64_t>(norm.bias.size());
  TrainJob measured = job;
  measured.options.batch = std::clamp<int64_t>(pictures, 2, kMostAtOnce);
  const int64_t steps = (pictures + measured.options.batch - 1) / measured.options.batch;
  models::onnx::Model restored = file.model();
  try {
    models::onnx::write_model(measuring_model(file.model(), folded), measuring);
    measure_norms(measured, measuring, weights, channels, steps, observer);
    const data::WeightsFile statistics(weights);
    const double share = 1 - std::pow(kKept, static_cast<double>(steps));
    for (const FoldedNorm& norm : folded) put_back(restored, norm, statistics, share);
  } catch (...) {
    clear();
    throw;
  }
  clear();
  for (auto norm = folded.rbegin(); norm != folded.rend(); ++norm) {
    models::onnx::Node& convolution = restored.nodes[norm->node];
    const std::string output = convolution.outputs[0], before = norm->name + "_input";
    convolution.inputs.resize(2);
    convolution.outputs = {before};
    restored.nodes.insert(restored.nodes.begin() + static_cast<std::ptrdiff_t>(norm->node) + 1,
                          norm_node(*norm, before, output));
  }
  models::onnx::write_model(restored, target);
  return static_cast<int64_t>(folded.size());
}

}  // namespace millrace::train
