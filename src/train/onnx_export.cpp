#include "train/onnx_export.h"

#include "base/error.h"
#include "data/weights/weights_file.h"
#include "passes/inference.h"
#include "train/model_card.h"
#include "train/weights.h"

namespace millrace::train {
namespace {

constexpr int64_t kExampleBatch = 2;  // networks are checked as if they trained

std::vector<float> values_in(const data::WeightsFile& file, const graph::Tensor& tensor) {
  const data::WeightTensor* stored = file.find(tensor.name);
  if (stored == nullptr || stored->shape != tensor.type.shape || !data::is_float(stored->type)) {
    fail_input("'{}' does not fit the model: it has no tensor '{}' of shape {}.",
               file.path().string(), tensor.name, graph::to_string(tensor.type.shape));
  }
  std::vector<float> values(static_cast<size_t>(stored->elements()));
  data::read_values(*stored, values);
  return values;
}

bool is_insightface(const data::ImageRecipe& recipe) {
  const std::array<float, 3> half = {0.5f, 0.5f, 0.5f};
  return recipe.mean == half && recipe.deviation == half && recipe.channels == 3;
}

ModelCard exported_card(const TrainJob& job, bool embeds, TrainingObserver& observer) {
  ModelCard card = card_of(job);
  if (!embeds) return card;
  card.class_names.clear();
  card.classes = 0;
  observer.on_message(Severity::note,
                      "The file ends at the embedding; margin heads and classifiers of face "
                      "networks are left out.");
  if (card.recipe && !is_insightface(*card.recipe)) {
    observer.on_message(
        Severity::warning,
        "InsightFace's tools feed (x - 127.5) / 127.5, but this network was "
        "trained with another mean and deviation; they are in the file's metadata.");
  }
  return card;
}

}  // namespace

ExportReport export_onnx(const TrainJob& job, const std::filesystem::path& file,
                         models::onnx::ExportSettings settings, TrainingObserver& observer) {
  const bool embeds = !job.network && models::is_face_model(job.model);
  models::ModelOptions options = job.options;
  options.batch = kExampleBatch;
  options.head.reset();
  options.classifier = !embeds;
  settings.result = embeds ? "embedding" : "logits";
  graph::Graph graph = job.network ? job.network(options) : models::build_model(job.model, options);
  passes::make_inference(graph);
  const data::WeightsFile weights(weights_file(job, observer), true);
  models::onnx::Model model = models::onnx::export_graph(
      graph, [&](const graph::Tensor& tensor) { return values_in(weights, tensor); }, settings);
  model.metadata = to_metadata(exported_card(job, embeds, observer));
  model.metadata.erase("format");
  models::onnx::write_model(model, file);
  ExportReport report = {.nodes = model.nodes.size(), .result = settings.result};
  for (const models::onnx::TensorData& tensor : model.initializers) {
    if (tensor.type == models::onnx::ElementType::f32)
      report.parameters += graph::elements_of(tensor.shape);
  }
  return report;
}

}  // namespace millrace::train
