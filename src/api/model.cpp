#include "api/model.h"

#include <algorithm>

#include "api/temporary.h"
#include "base/error.h"
#include "base/parallel.h"
#include "data/image/transform.h"
#include "data/record_source.h"
#include "data/weights/weights_file.h"
#include "train/evaluation.h"
#include "train/evaluation_model.h"
#include "train/faces/embedder.h"
#include "train/feed/feeds.h"
#include "train/model_card.h"
#include "train/network.h"
#include "train/onnx_export.h"
#include "train/weights.h"

namespace millrace::api {
namespace {

constexpr int64_t kSome = 8, kMany = 32;  // pictures at once

void set_weights(train::TrainJob& job, const ModelSettings& settings) {
  if (settings.weights.empty()) return;
  if (!std::filesystem::exists(settings.weights)) {
    fail_input("There are no weights '{}'.", settings.weights.string());
  }
  (std::filesystem::is_directory(settings.weights) ? job.checkpoint : job.load_weights) =
      settings.weights;
  job.best = settings.best;
}

void require_sizes(const ModelSettings& settings) {
  const std::pair<std::string_view, int64_t> sizes[] = {{"classes", settings.classes},
                                                        {"image", settings.image},
                                                        {"channels", settings.channels},
                                                        {"threads_per_device", settings.threads}};
  for (const auto& [name, size] : sizes) {
    if (size < 0) fail_input("‹{}› is {}; it must not be negative.", name, size);
  }
}

// Given, or else what the weights tell, or else what is usual.
int64_t first_of(int64_t given, int64_t known, int64_t usual) {
  if (given > 0) return given;
  return known > 0 ? known : usual;
}

// The pictures from `first` on as a batch of the job, filled up with zeros.
std::vector<float> batch_of(const train::TrainJob& job, const data::RecordSource& records,
                            uint64_t first, int64_t rows) {
  const data::TransformOptions transform = train::evaluation_transform(job);
  data::Transformer transformer(transform);
  const auto one = static_cast<size_t>(transform.values());
  std::vector<float> images(one * static_cast<size_t>(job.options.batch), 0.0f);
  for (int64_t i = 0; i < rows; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    transformer.apply(records.read(index), Random(0, 0),
                      images.data() + one * static_cast<size_t>(i));
  }
  return images;
}

void require_going_on(const std::atomic<bool>* stop) {
  if (stop != nullptr && stop->load()) fail_job("Stopped before all pictures were seen.");
}

void require_own_name(const Metric& metric) {
  const std::vector<std::string> names = train::metric_names();
  if (metric.name.empty() || std::find(names.begin(), names.end(), metric.name) != names.end()) {
    fail_input("A metric of one's own cannot be called '{}'.", metric.name);
  }
}

}  // namespace

Model::Model(const std::string& name, const ModelSettings& settings) {
  require_sizes(settings);
  if (name.empty() && settings.weights.empty()) {
    fail_input("Name a model, or weights that tell of which model they are.");
  }
  if (settings.best && !std::filesystem::is_directory(settings.weights)) {
    fail_input("‹best› chooses among the checkpoints of a run, and no run is given as weights.");
  }
  set_weights(job_, settings);
  train::ModelCard card;
  if (!settings.weights.empty()) card = train::find_card(job_.checkpoint, job_.load_weights);
  job_.model = name.empty() ? card.model : name;
  if (job_.model.empty()) {
    fail_input("'{}' does not tell of which model it is; name it.", settings.weights.string());
  }
  const bool same = job_.model == card.model;
  if (!same) card = {};
  const models::ModelOptions usual = models::default_options(job_.model);
  job_.options = usual;
  job_.options.classes = first_of(settings.classes, card.classes, usual.classes);
  job_.options.image = first_of(settings.image, card.image, usual.image);
  job_.options.channels = first_of(settings.channels, card.channels, usual.channels);
  job_.options.dropout = settings.dropout;
  if (job_.options.classes == card.classes) job_.class_names = card.class_names;
  job_.data.recipe = card.recipe;
  job_.new_layers.automatic = !train::starting_weights(job_).empty() || !job_.checkpoint.empty();
  job_.threads = settings.threads;
}

Model::Model(const std::string& name, Describe network, const ModelSettings& settings) {
  require_sizes(settings);
  set_weights(job_, settings);
  job_.model = name;
  if (settings.classes < 1) fail_input("A network of one's own needs its number of classes.");
  job_.options.classes = settings.classes;
  job_.options.image = first_of(settings.image, 0, job_.options.image);
  job_.options.channels = first_of(settings.channels, 0, job_.options.channels);
  job_.options.dropout = settings.dropout;
  job_.threads = settings.threads;
  job_.network = [network = std::move(network)](const models::ModelOptions& options) {
    graph::Builder net;
    net.classify(network(net, options), {.label_smoothing = options.label_smoothing});
    return net.take();
  };
}

void Model::freeze(std::vector<std::string> patterns) { job_.trained.freeze = std::move(patterns); }

void Model::train_only(std::vector<std::string> patterns) {
  job_.trained.train_only = std::move(patterns);
}

void Model::require_weights() const {
  if (job_.checkpoint.empty() && train::starting_weights(job_).empty()) {
    fail_input("The model '{}' has no weights yet; train it, or give it some.", job_.model);
  }
}

Model Model::renewed() const {
  Model model = *this;
  model.loaded_ = std::make_shared<Loaded>();
  return model;
}

// Programs are compiled for one picture, for some and for many; a network is checked as if it
// trained, which some cannot with one picture.
int64_t Model::batch_for(int64_t pictures) const {
  if (pictures > kSome) return kMany;
  if (pictures > 1) return kSome;
  if (loaded_->fewest == 0) {
    train::TrainJob job = job_;
    job.options.batch = 1;
    job.trained = {};
    try {
      train::network_of(job);
      loaded_->fewest = 1;
    } catch (const InputError&) {
      loaded_->fewest = kSome;
    }
  }
  return loaded_->fewest;
}

train::EvaluationModel& Model::classifier(int64_t batch) {
  require_weights();
  std::shared_ptr<train::EvaluationModel>& loaded = loaded_->classifiers[batch];
  if (!loaded) {
    train::TrainJob job = job_;
    job.options.batch = batch;
    job.trained = {};
    train::TrainingObserver silent;
    loaded = std::make_shared<train::EvaluationModel>(job, silent);
  }
  return *loaded;
}

train::Embedder& Model::embedder(int64_t batch) {
  require_weights();
  std::shared_ptr<train::Embedder>& loaded = loaded_->embedders[batch];
  if (!loaded) {
    train::TrainJob job = job_;
    job.options.batch = batch;
    job.options.head.reset();
    train::TrainingObserver silent;
    loaded = std::make_shared<train::Embedder>(job, silent);
  }
  return *loaded;
}

train::EvaluationReport Model::evaluate(const DataPart& data, const std::vector<Metric>& metrics,
                                        const std::atomic<bool>* stop) {
  for (const Metric& metric : metrics) require_own_name(metric);
  end_team();
  std::unique_lock turn(loaded_->turn);
  train::EvaluationModel& model = classifier(kMany);
  train::TrainJob job = model.job();
  set_evaluation_data(job, data);
  const std::unique_ptr<train::Feed> feed = data.records
                                                ? train::make_evaluation_feed(job, data.records)
                                                : train::open_evaluation_data(job)->start();
  train::KeptLogits kept;
  std::optional<train::EvaluationReport> report =
      train::evaluate(model.engine(), *feed, stop, metrics.empty() ? nullptr : &kept);
  if (!report) fail_job("Stopped before the whole data set was evaluated.");
  turn.unlock();  // a metric may look at pictures itself
  if (metrics.empty()) return *report;
  const Rows scores = {.count = static_cast<int64_t>(kept.labels.size()),
                       .width = job.options.classes,
                       .values = std::move(kept.logits)};
  for (const Metric& metric : metrics) {
    report->figures.push_back({metric.name, metric.figure(scores, kept.labels)});
  }
  return *report;
}

Rows Model::predict(const Pictures& pictures, const std::atomic<bool>* stop) {
  end_team();
  const std::shared_ptr<const data::RecordSource> records = records_of(pictures);
  const std::lock_guard turn(loaded_->turn);
  train::EvaluationModel& model = classifier(batch_for(pictures.count));
  const train::TrainJob& job = model.job();
  Rows rows = {.count = pictures.count, .width = job.options.classes};
  for (int64_t first = 0; first < pictures.count; first += job.options.batch) {
    require_going_on(stop);
    const int64_t count = std::min(job.options.batch, pictures.count - first);
    const std::vector<float> images = batch_of(job, *records, static_cast<uint64_t>(first), count);
    std::vector<int32_t> labels(static_cast<size_t>(job.options.batch), train::kNoLabel);
    std::fill_n(labels.begin(), count, 0);
    train::KeptLogits kept;
    train::Scores scores(job.options.classes);
    scores.kept = &kept;
    model.engine().evaluate({.images = images, .labels = labels, .position = {}}, scores);
    rows.values.insert(rows.values.end(), kept.logits.begin(), kept.logits.end());
  }
  return rows;
}

Rows Model::embed(const Pictures& pictures, const std::atomic<bool>* stop) {
  end_team();
  const std::shared_ptr<const data::RecordSource> records = records_of(pictures);
  const std::lock_guard turn(loaded_->turn);
  train::Embedder& model = embedder(batch_for(pictures.count));
  Rows rows = {.count = pictures.count, .width = model.features()};
  for (int64_t first = 0; first < pictures.count; first += model.batch()) {
    require_going_on(stop);
    const int64_t count = std::min(model.batch(), pictures.count - first);
    const std::vector<float> images =
        batch_of(model.job(), *records, static_cast<uint64_t>(first), count);
    model.append(images, static_cast<size_t>(count), rows.values);
  }
  return rows;
}

std::vector<NamedTensor> Model::state() const {
  require_weights();
  train::TrainingObserver silent;
  const data::WeightsFile file(train::weights_file(job_, silent));
  std::vector<NamedTensor> tensors;
  for (const data::WeightTensor& stored : file.tensors()) {
    if (!data::is_float(stored.type)) continue;
    NamedTensor& tensor = tensors.emplace_back(NamedTensor{stored.name, stored.shape, {}});
    tensor.values.resize(static_cast<size_t>(stored.elements()));
    data::read_values(stored, tensor.values);
  }
  return tensors;
}

void Model::save(const std::filesystem::path& file) const {
  write_state(file, state(), train::to_metadata(train::card_of(job_)));
}

Exported Model::export_onnx(const std::filesystem::path& file, const ExportOptions& options,
                            train::TrainingObserver* observer) const {
  require_weights();
  train::TrainingObserver silent;
  const train::ExportReport report =
      train::export_onnx(job_, file, {.opset = options.opset, .fold = options.fold, .result = {}},
                         observer == nullptr ? silent : *observer);
  return {report.nodes, report.parameters, report.result};
}

}  // namespace millrace::api
