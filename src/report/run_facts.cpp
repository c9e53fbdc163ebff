#include "report/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/median.h"
#include "base/text.h"

namespace millrace::report {
namespace {

using Kind = RunFile::Kind;

void add_placement(const Json& plan, RunFacts& facts) {
  facts.placement = json_text(plan, "placement");
  facts.micro_batches = json_number(plan, "microbatches");
  std::string cuts;
  for (const auto& [key, separator] : {std::pair("stage_weights", ":"), {"cut_after", ", "}}) {
    const Json list = json_member(plan, key);
    if (!list.is_array() || !cuts.empty()) continue;
    for (const Json& value : list) {
      if (!cuts.empty()) cuts += separator;
      cuts += value.is_string() ? value.get<std::string>() : value.dump();
    }
    if (!cuts.empty() && key == std::string_view("cut_after")) cuts = "after " + cuts;
  }
  facts.cuts = cuts;
}

void add_memory(const Json& root, RunFacts& facts) {
  const Json devices = json_member(root, "devices");
  facts.devices = static_cast<int>(devices.size());
  for (const Json& device : devices) {
    const std::optional<double> peak = json_number(device, "peak_bytes");
    const double stage = json_number(device, "stage").value_or(0);
    if (!peak || !(stage >= 0 && stage < 4096)) continue;
    const auto index = static_cast<size_t>(stage);
    if (index >= facts.stage_memory.size()) facts.stage_memory.resize(index + 1);
    facts.stage_memory[index] = std::max(facts.stage_memory[index], *peak);
  }
}

void add_general(const Json& root, RunFacts& facts) {
  facts.model = json_text(root, "model");
  facts.data = json_text(root, "data");
  facts.precision = json_text(root, "precision");
  facts.schedule = json_text(root, "schedule");
  facts.batch = json_number(root, "global_batch");
  const double steps = json_number(root, "steps_per_epoch").value_or(0);
  if (steps > 0) facts.epoch_images = steps * facts.batch.value_or(0);
  facts.image = json_number(root, "image");
  const Json fits = json_member(root, "fits");
  if (fits.is_boolean()) facts.fits = fits.get<bool>();
  add_placement(json_member(root, "plan"), facts);
  if (facts.schedule.empty()) facts.schedule = json_text(json_member(root, "plan"), "schedule");
  add_memory(root, facts);
}

void add_prediction(const Json& root, RunFacts& facts) {
  facts.predicted_seconds = json_number(root, "predicted_seconds_per_step");
  facts.predicted_rate = json_number(root, "predicted_samples_per_second");
  const Json estimate = json_member(root, "error_estimate");
  facts.predicted_error =
      estimate.is_number() ? json_number(root, "error_estimate") : json_number(estimate, "median");
  facts.predicted_bubble = json_number(root, "bubble");
  facts.predicted_process_memory = json_number(root, "process_rss_bytes");
  facts.seconds_per_step = json_number(root, "measured_step_seconds");
  facts.samples_per_second = json_number(root, "measured_samples_per_second");
  facts.process_memory = json_number(root, "measured_rss_bytes");
}

Evaluation evaluation_of(const Json& json) {
  Evaluation evaluation = {json_number(json, "step").value_or(0), json_number(json, "samples")};
  for (const auto& [name, value] : json.items()) {
    const bool about = name == "step" || name == "samples" || name == "seconds";
    if (value.is_number() && !about) evaluation.figures.emplace_back(name, value.get<double>());
  }
  return evaluation;
}

void set_if_known(std::optional<double>& to, const std::optional<double>& from) {
  if (from) to = from;
}

void add_summary(const Json& root, RunFacts& facts) {
  add_general(root, facts);
  if (root.contains("predicted_seconds_per_step")) add_prediction(root, facts);
  facts.steps = json_number(root, "steps");
  set_if_known(facts.samples_per_second, json_number(root, "samples_per_second"));
  set_if_known(facts.seconds_per_step,
               json_number(json_member(root, "seconds_per_step"), "median"));
  set_if_known(facts.process_memory, json_number(root, "process_peak_rss_bytes"));
  facts.skipped_steps = json_number(json_member(root, "loss_scale"), "skipped_steps");
  const Json evaluation = json_member(root, "evaluation");
  if (evaluation.is_object()) facts.evaluations.push_back(evaluation_of(evaluation));
  const Json finished = json_member(root, "finished");
  if (finished.is_boolean()) facts.finished = finished.get<bool>();
  const Json losses = json_member(root, "loss");
  if (!losses.is_array() || losses.empty()) return;
  if (losses.front().is_number()) facts.first_loss = losses.front().get<double>();
  if (losses.back().is_number()) facts.last_loss = losses.back().get<double>();
  const double first = json_number(root, "first_step").value_or(0);
  for (size_t i = 0; i < losses.size(); ++i) {
    StepPoint point;
    point.step = first + static_cast<double>(i) + 1;
    if (losses[i].is_number()) point.loss = losses[i].get<double>();
    facts.points.push_back(point);
  }
}

void add_metrics(const std::vector<Json>& lines, RunFacts& facts) {
  std::vector<StepPoint> points;
  std::vector<Evaluation> evaluations;
  std::vector<double> seconds, rates;
  for (const Json& line : lines) {
    const std::string kind = json_text(line, "kind");
    if (kind == "evaluation") evaluations.push_back(evaluation_of(line));
    const std::optional<double> step = json_number(line, "step");
    if (!step || (kind != "step" && !kind.empty())) continue;
    points.push_back({*step, json_number(line, "loss"), json_number(line, "samples_per_second"),
                      json_number(line, "learning_rate"), json_number(line, "loss_scale"), false});
    const Json skipped = json_member(line, "skipped");
    points.back().skipped = skipped.is_boolean() && skipped.get<bool>();
    if (points.size() < 2) continue;
    if (const auto value = json_number(line, "seconds")) seconds.push_back(*value);
    if (points.back().samples_per_second) rates.push_back(*points.back().samples_per_second);
  }
  if (!evaluations.empty()) facts.evaluations = std::move(evaluations);
  if (points.empty()) return;
  const auto skipped = std::count_if(points.begin(), points.end(),
                                     [](const StepPoint& point) { return point.skipped; });
  if (!facts.skipped_steps && skipped > 0) facts.skipped_steps = static_cast<double>(skipped);
  if (!facts.steps) {
    facts.steps = static_cast<double>(points.size());
    facts.first_loss = points.front().loss;
    facts.last_loss = points.back().loss;
    facts.finished = false;
  }
  if (!facts.seconds_per_step && !seconds.empty()) facts.seconds_per_step = median(seconds);
  if (!facts.samples_per_second && !rates.empty()) facts.samples_per_second = median(rates);
  facts.points = std::move(points);
}

}  // namespace

std::optional<double> Evaluation::figure(std::string_view name) const {
  for (const auto& [own, value] : figures) {
    if (own == name) return value;
  }
  return {};
}

Json json_member(const Json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto entry = object.find(key);
  return entry == object.end() ? Json() : *entry;
}

std::optional<double> json_number(const Json& object, const char* key) {
  const Json value = json_member(object, key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) return std::nullopt;
  return value.get<double>();
}

std::string json_text(const Json& object, const char* key) {
  const Json value = json_member(object, key);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (value.is_null() || value.is_structured()) return "";
  return value.dump();
}

RunFacts facts_of(const Run& run, int64_t first_step, int64_t steps) {
  RunFacts facts;
  facts.name = run.name;
  const RunFile* plan = run.find(Kind::plan);
  const RunFile* summary = run.find(Kind::summary);
  const RunFile* metrics = run.find(Kind::metrics);
  if (plan != nullptr) {
    add_general(plan->json, facts);
    add_prediction(plan->json, facts);
  }
  if (summary != nullptr) {
    facts.stage_memory.clear();
    add_summary(summary->json, facts);
  }
  if (metrics != nullptr) add_metrics(metrics->metrics, facts);
  const RunFile* evaluation = run.find(Kind::evaluation);
  if (evaluation != nullptr && plan == nullptr && summary == nullptr) {
    add_general(evaluation->json, facts);
  }
  if (evaluation != nullptr && facts.evaluations.empty()) {
    facts.evaluations.push_back(evaluation_of(evaluation->json));
  }
  for (const RunFile& file : run.files) {
    if (file.kind != Kind::trace) continue;
    const TraceFacts& trace =
        facts.traces.emplace(&file, trace_facts(file.trace, first_step, steps)).first->second;
    std::optional<double>& bubble = file.simulated ? facts.predicted_bubble : facts.bubble;
    if (!bubble && !file.trace.events.empty()) bubble = trace.times.bubble_of_total();
  }
  return facts;
}

std::string error_text(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.1f} %", 100 * (predicted / measured - 1)) : "–";
}

std::string sentence_of(const RunFacts& facts) {
  if (facts.model.empty() && !facts.steps) return "What the run's files tell.";
  std::string text = facts.model.empty() ? "A run" : facts.model;
  if (!facts.precision.empty()) text += " in " + facts.precision;
  if (facts.devices > 0) {
    text += fmt::format(" on {} device{}", facts.devices, facts.devices == 1 ? "" : "s");
  }
  if (facts.stage_memory.size() > 1) {
    text += fmt::format(" in {} stages ({})", facts.stage_memory.size(), facts.schedule);
  }
  if (facts.batch) text += fmt::format(", {:g} samples a step", *facts.batch);
  const std::optional<double> rate = facts.samples_per_second;
  if (facts.steps) {
    text += fmt::format(": {:g} step{}", *facts.steps, *facts.steps == 1 ? "" : "s");
    if (rate) text += fmt::format(" at {:.4g} samples/s", *rate);
    if (facts.first_loss && facts.last_loss) {
      text += fmt::format(", loss from {:.4g} to {:.4g}", *facts.first_loss, *facts.last_loss);
    }
    if (!facts.finished) text += "; it did not run to its end";
  } else if (rate) {
    text += fmt::format(": {:.4g} samples/s measured", *rate);
  } else if (facts.predicted_rate) {
    text += fmt::format(": predicted {:.4g} samples/s", *facts.predicted_rate);
    if (!facts.fits) text += ", and does not fit";
  }
  text += ".";
  if (!facts.evaluations.empty()) {
    const std::optional<double> right = facts.evaluations.back().figure("top1");
    if (right) text += fmt::format(" The last evaluation had {:.1f} % right.", 100 * *right);
  }
  if (!facts.stage_memory.empty()) {
    const double most = *std::max_element(facts.stage_memory.begin(), facts.stage_memory.end());
    if (most >= 0 && most < 9e18) {
      text +=
          fmt::format(" The fullest device needs {}.", format_bytes(static_cast<uint64_t>(most)));
    }
  }
  const std::optional<double> bubble = facts.bubble ? facts.bubble : facts.predicted_bubble;
  if (bubble) {
    text += fmt::format(" Devices {} idle for {:.1f} % of the time.",
                        facts.bubble ? "were" : "would be", 100 * *bubble);
  }
  if (rate && facts.predicted_rate) {
    text += fmt::format(" The prediction was {:.4g} samples/s ({}).", *facts.predicted_rate,
                        error_text(*facts.predicted_rate, *rate));
  }
  return text;
}

}  // namespace millrace::report
