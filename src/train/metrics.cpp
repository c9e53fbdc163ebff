#include "train/metrics.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/text.h"

namespace millrace::train {
namespace {

// Lines of an earlier run that a run going on from `step` would not write again.
std::string lines_up_to(const std::filesystem::path& path, int64_t step) {
  std::string kept;
  if (step == 0 || !std::filesystem::is_regular_file(path)) return kept;
  for (const std::string& line : split(read_text(path), '\n')) {
    const Json json = parse_json(line);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    if (json["step"].get<int64_t>() <= step) kept += line + "\n";
  }
  return kept;
}

}  // namespace

void MetricsWriter::on_start(const JobStart& start) {
  file_.emplace(path_, lines_up_to(path_, start.first_step));
}

void MetricsWriter::on_step(const StepReport& report) {
  Json json;
  json["kind"] = "step";
  json["step"] = report.step;
  json["epoch"] = report.epoch;
  json["loss"] = report.loss;
  json["learning_rate"] = report.learning_rate;
  for (const Measured& figure : report.figures) json[figure.metric] = figure.value;
  json["samples"] = report.samples;
  json["seconds"] = report.seconds;
  json["wait_seconds"] = report.wait_seconds;
  json["checkpoint_seconds"] = report.checkpoint_seconds;
  json["samples_per_second"] = report.samples_per_second;
  json["loss_scale"] = report.loss_scale;
  json["skipped"] = report.skipped;
  if (report.skipped) json["overflow"] = report.overflow;
  write_line(json);
}

void MetricsWriter::on_evaluation(const EvaluationReport& report) {
  Json json;
  json["kind"] = "evaluation";
  json["step"] = report.step;
  json["samples"] = report.samples;
  if (report.pairs > 0) json["pairs"] = report.pairs;
  for (const Measured& figure : report.figures) json[figure.metric] = figure.value;
  json["seconds"] = report.seconds;
  write_line(json);
}

void MetricsWriter::on_checkpoint(const CheckpointReport& report) {
  Json json;
  json["kind"] = "checkpoint";
  json["step"] = report.step;
  json["directory"] = report.directory.string();
  json["bytes"] = report.bytes;
  json["seconds"] = report.seconds;
  json["pause_seconds"] = report.pause_seconds;
  write_line(json);
}

void MetricsWriter::write_line(const Json& json) {
  file_->add(json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string MetricsWriter::failure() const {
  if (!file_ || file_->failure().empty()) return {};
  return fmt::format("Metrics end early: {}", file_->failure());
}

}  // namespace millrace::train
