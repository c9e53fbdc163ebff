// A network, with weights or without.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "api/data.h"
#include "graph/builder.h"
#include "train/job.h"
#include "train/observer.h"

namespace millrace::train {
class Embedder;
class EvaluationModel;
}  // namespace millrace::train

namespace millrace::api {

// 0 or empty: the weights', or else the model's usual.
struct ModelSettings {
  int64_t classes = 0;
  int64_t image = 0;
  int64_t channels = 0;
  // A file of weights, a run's directory or one of its checkpoints. Layers of another shape, as
  // those of other classes are, start anew.
  std::filesystem::path weights = {};
  bool best = false;  // of a run, the checkpoint that was measured best
  bool dropout = true;
  int threads = 0;  // 0: every core
};

// Rows of numbers, one after the other.
struct Rows {
  int64_t count = 0;
  int64_t width = 0;
  std::vector<float> values = {};
};

// One tensor of a model's state, in row-major order.
struct NamedTensor {
  std::string name;
  graph::Shape shape;
  std::vector<float> values;
};

// How an ONNX file is written.
struct ExportOptions {
  bool fold = false;  // batch normalisations into the layers before them
  int64_t opset = 17;
};

// What was written.
struct Exported {
  size_t nodes = 0;
  int64_t parameters = 0;
  std::string result = {};  // "logits" or "embedding"
};

// A figure of one's own for evaluations: a function of the scores (logits) of all samples, a row
// each, and of their labels. Its name must be none of Millrace's own figures.
struct Metric {
  std::string name;
  std::function<double(const Rows& scores, std::span<const int32_t> labels)> figure;
};

// Describes a network with the Builder, for the batch, image, channels and classes of the options,
// and returns its logits.
using Describe =
    std::function<graph::Value(graph::Builder& net, const models::ModelOptions& options)>;

// Cheap to copy; copies share what they have loaded. Any thread may look at pictures, and measure;
// threads that do so with copies of one model take turns.
class Model {
 public:
  // A model by name, "onnx:FILE", or an empty name for what the weights say that they are of.
  explicit Model(const std::string& name, const ModelSettings& settings = {});
  // A network of one's own; `name` is what reports call it.
  Model(const std::string& name, Describe network, const ModelSettings& settings);
  // What a job says: its network, and weights where it names some.
  explicit Model(const train::TrainJob& job) : job_(job) {}
  // With the tensors of a state dictionary as weights. Without a name it is the model that has
  // tensors of these names and shapes; classes are theirs unless the settings tell. Throws
  // InputError if no model fits.
  static Model from_state(const std::vector<NamedTensor>& state, std::string name,
                          ModelSettings settings);

  // Leaves layers untrained, by patterns such as "layer4.*": these, or all but those.
  void freeze(std::vector<std::string> patterns);
  void train_only(std::vector<std::string> patterns);

  // Figures over all of the data, one's own behind the others; throws InputError if the model has
  // no weights, and JobError if `stop` (may be null) is set before the end.
  train::EvaluationReport evaluate(const DataPart& data, const std::vector<Metric>& metrics = {},
                                   const std::atomic<bool>* stop = nullptr);
  // The scores of each class (logits) for each picture, which are brought to the model's size as
  // those of an evaluation are. Throws JobError if `stop` (may be null) is set before the end.
  Rows predict(const Pictures& pictures, const std::atomic<bool>* stop = nullptr);
  // Embeddings of a face network, of unit length.
  Rows embed(const Pictures& pictures, const std::atomic<bool>* stop = nullptr);

  // Parameters and running statistics under their names.
  std::vector<NamedTensor> state() const;
  // Safetensors with class names and recipe.
  void save(const std::filesystem::path& file) const;
  // An observer (may be null) is told what was left out.
  Exported export_onnx(const std::filesystem::path& file, const ExportOptions& options = {},
                       train::TrainingObserver* observer = nullptr) const;

  const std::string& name() const { return job_.model; }
  int64_t classes() const { return job_.options.classes; }
  int64_t image() const { return job_.options.image; }
  const std::vector<std::string>& class_names() const { return job_.class_names; }

  // What a job trains with; for those who need a field that has no place above.
  train::TrainJob& settings() { return job_; }
  const train::TrainJob& settings() const { return job_; }

  // The same with nothing loaded.
  Model renewed() const;

  // Keeps something, such as a directory of weights, as long as the model lives.
  void keep(std::shared_ptr<const void> owner) { owner_ = std::move(owner); }

 private:
  // What has been loaded, by the batch that it takes.
  struct Loaded {
    std::mutex turn;  // of the thread that uses it
    std::map<int64_t, std::shared_ptr<train::EvaluationModel>> classifiers;
    std::map<int64_t, std::shared_ptr<train::Embedder>> embedders;
    int64_t fewest = 0;  // pictures that the network takes; 0: not known yet
  };

  int64_t batch_for(int64_t pictures) const;
  train::EvaluationModel& classifier(int64_t batch);
  train::Embedder& embedder(int64_t batch);
  void require_weights() const;

  train::TrainJob job_;
  std::shared_ptr<Loaded> loaded_ = std::make_shared<Loaded>();
  std::shared_ptr<const void> owner_;
};

}  // namespace millrace::api
