// Millrace's side of the comparisons in models_check.py; numbers travel as plain float32 files.
//   onnx_run make MODEL IMAGE DIRECTORY   a network with drawn weights and statistics: kept.onnx,
//                                         folded.onnx, input.f32 of three images, output.f32
//   onnx_run run FILE.onnx INPUT OUTPUT   what Millrace computes with the network of a file
#include <cstdio>
#include <random>

#include "base/file.h"
#include "train/engine.h"
#include "train/job_state.h"
#include "train/onnx_export.h"
#include "train/weights.h"

namespace millrace {
namespace {

constexpr int64_t kImages = 3;

train::TrainJob evaluation_of(const std::string& model, int64_t image, int64_t batch) {
  train::TrainJob job;
  job.model = model;
  job.options = models::default_options(model);
  if (image > 0) job.options.image = image;
  job.options.batch = batch;
  job.options.classifier = !models::is_face_model(model);
  job.threads = 1;
  job.seed = 5;
  return job;
}

std::vector<float> compute(train::Engine& engine, const train::TrainJob& job,
                           std::span<const float> images) {
  const compile::Program& program = *engine.evaluation();
  engine.session().write_input(program, "images", images);
  engine.session().run(program, kernels::StepState{});
  return engine.session().result(program, job.options.classifier ? "logits" : "embedding");
}

void write_floats(const std::filesystem::path& path, std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  write_text(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::vector<float> read_floats(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  std::vector<float> values(text.size() / sizeof(float));
  std::memcpy(values.data(), text.data(), text.size());
  return values;
}

// Norms that do something: other scales than 1, other statistics than those of the start.
void draw_norms(train::JobState& state) {
  std::mt19937 random(11);
  std::vector<float> values;
  for (size_t i = 0; i < state.tensors().size(); ++i) {
    const train::JobTensor& tensor = state.tensors()[i];
    const bool is_spread = tensor.name.ends_with(".running_var") || tensor.name.ends_with("weight");
    if (tensor.shape.size() != 1) continue;
    state.read(i, values);
    std::uniform_real_distribution<float> draw(is_spread ? 0.5f : -0.2f, is_spread ? 1.5f : 0.2f);
    for (float& value : values) value = draw(random);
    state.write(i, values);
  }
}

void make(const std::string& model, int64_t image, const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  train::TrainJob job = evaluation_of(model, image, kImages);
  train::TrainingObserver silent;
  train::Engine engine(job, train::Purpose::evaluation, silent);
  engine.start(job.seed);
  train::JobState state(engine);
  draw_norms(state);
  job.load_weights = directory / "weights.safetensors";
  train::save_weights(state, job.load_weights, {});
  for (const bool fold : {false, true}) {
    train::export_onnx(job, directory / (fold ? "folded.onnx" : "kept.onnx"), {.fold = fold},
                       silent);
  }
  std::vector<float> images(
      static_cast<size_t>(kImages * job.options.channels * job.options.image * job.options.image));
  std::mt19937 random(3);
  std::normal_distribution<float> draw;
  for (float& value : images) value = draw(random);
  write_floats(directory / "input.f32", images);
  write_floats(directory / "output.f32", compute(engine, job, images));
}

void run(const std::filesystem::path& file, const char* input, const char* output) {
  std::vector<float> images = read_floats(input);
  train::TrainJob job = evaluation_of(models::kOnnxPrefix + file.string(), 0, 1);
  const int64_t one = job.options.channels * job.options.image * job.options.image;
  const auto rows = static_cast<int64_t>(images.size()) / one;
  job.options.batch = std::max<int64_t>(2, rows);  // networks are checked as if they trained
  images.resize(static_cast<size_t>(job.options.batch * one));
  train::TrainingObserver silent;
  train::Engine engine(job, train::Purpose::evaluation, silent);
  engine.start(job.seed);
  train::JobState state(engine);
  train::load_weights(state, file);
  const std::vector<float> values = compute(engine, job, images);
  const size_t width = values.size() / static_cast<size_t>(job.options.batch);
  write_floats(output, std::span(values).first(width * static_cast<size_t>(rows)));
}

}  // namespace
}  // namespace millrace

int main(int count, char** arguments) {
  try {
    const std::string what = count == 5 ? arguments[1] : "";
    if (what == "make") {
      millrace::make(arguments[2], std::atoll(arguments[3]), arguments[4]);
    } else if (what == "run") {
      millrace::run(arguments[2], arguments[3], arguments[4]);
    } else {
      std::fputs("usage: onnx_run make MODEL IMAGE DIRECTORY | run FILE INPUT OUTPUT\n", stderr);
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "onnx_run: %s\n", error.what());
    return 1;
  }
}
