#include "train/job_record.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace millrace::train {
namespace {

std::string_view name_of(kernels::ConvolutionAlgorithm algorithm) {
  constexpr std::string_view kWords[] = {"auto", "direct", "winograd"};
  return kWords[static_cast<size_t>(algorithm)];
}

std::string_view name_of(graph::HeadParallel parallel) {
  constexpr std::string_view kWords[] = {"dp", "mp", "pfc"};
  return kWords[static_cast<size_t>(parallel)];
}

std::string_view name_of(graph::HeadMomentum momentum) {
  constexpr std::string_view kWords[] = {"lazy", "none", "frozen"};
  return kWords[static_cast<size_t>(momentum)];
}

// What the head computes, wherever its centres are: dp, mp and pfc of all classes are the same.
Json describe_head(const graph::MarginHeadOptions& head) {
  Json json = {{"margin", {head.multiplier, head.addend, head.subtrahend}},
               {"scale", head.scale},
               {"exact_gradient", head.exact_gradient},
               {"sample_rate", head.sample_rate},
               {"dtype", graph::name_of(head.storage)}};
  if (head.margin != graph::HeadMargin::fixed) {
    json["kind"] = static_cast<int>(head.margin);
    json["strength"] = head.strength;
  }
  if (head.filter > 0) json["filter"] = head.filter;
  if (head.sample_rate < 1) json["momentum"] = name_of(head.momentum);
  return json;
}

Json value_of(const Json& json, const std::string& name) {
  return json.is_object() && json.contains(name) ? json[name] : Json();
}

void require_same_names(const Json& recorded, const Json& now,
                        const std::filesystem::path& checkpoint) {
  if (!recorded.is_array() || !now.is_array()) return;
  for (size_t i = 0; i < std::min(recorded.size(), now.size()); ++i) {
    if (recorded[i] == now[i]) continue;
    fail_input("Class {} of ‹data› is {}, but {} in checkpoint '{}'; use the same classes.", i,
               now[i].dump(), recorded[i].dump(), checkpoint.string());
  }
}

void note_change(std::vector<SettingChange>& changes, std::string flag, const Json& recorded,
                 const Json& now, const std::string& name) {
  const Json was = value_of(recorded, name);
  if (!was.is_null() && was != now.at(name))
    changes.push_back({std::move(flag), was, now.at(name)});
}

}  // namespace

Json describe_job(const TrainJob& job) {
  Json json;
  Json& fixed = json["fixed"];
  fixed["model"] = job.model;
  fixed["classes"] = job.options.classes;
  fixed["image"] = job.options.image;
  fixed["channels"] = job.options.channels;
  fixed["batch"] = job.options.batch;
  fixed["seed"] = job.seed;
  fixed["optimizer"] = job.optimizer.name;
  if (!job.class_names.empty()) fixed["class_names"] = job.class_names;
  if (job.options.head) fixed["head"] = describe_head(*job.options.head);
  json["data"] = printable(job.data.source);
  json["label-offset"] = job.data.label_offset;
  json["valid-share"] = job.data.valid_share;
  json["eval-data"] = job.evaluation_data;
  json["eval-verification"] = Json::array();
  for (const auto& set : job.verification) {
    json["eval-verification"].push_back(printable(set.string()));
  }
  json["freeze"] = job.trained.freeze;
  json["train-only"] = job.trained.train_only;
  json["layer-decay"] = job.trained.layer_decay;
  json["head-lr"] = job.trained.head_rate;
  json["freeze-norms"] = job.trained.freeze_norms;
  json["ema"] = job.average_decay;
  json["class-weights"] = job.class_weights;
  json["sampler"] = job.data.balanced ? "balanced" : "shuffled";
  json["lr-scale"] = Json::array();
  for (const passes::RateScale& scale : job.trained.rates) {
    json["lr-scale"].push_back({scale.pattern, scale.factor});
  }
  json["augment"] = job.data.augment;
  json["colour-jitter"] = {job.data.jitter.brightness, job.data.jitter.contrast,
                           job.data.jitter.saturation};
  json["rand-augment"] = {job.data.rand_augment.operations, job.data.rand_augment.magnitude};
  json["mixup"] = job.data.mix.mixup;
  json["cutmix"] = job.data.mix.cutmix;
  json["random-erasing"] = job.data.erasing;
  if (job.data.mean) json["mean"] = *job.data.mean;
  if (job.data.deviation) json["std"] = *job.data.deviation;
  json["dropout"] = job.options.dropout;
  json["label-smoothing"] = job.options.label_smoothing;
  json["momentum"] = job.optimizer.momentum;
  json["nesterov"] = job.optimizer.nesterov;
  json["weight-decay"] = job.optimizer.weight_decay;
  json["decay-all"] = job.optimizer.decay_all;
  json["clip-norm"] = job.optimizer.clip_norm;
  json["clip-backbone"] = job.optimizer.clip_backbone;
  json["adam-beta1"] = job.optimizer.beta1;
  json["adam-beta2"] = job.optimizer.beta2;
  json["adam-epsilon"] = job.optimizer.epsilon;
  json["lars-trust"] = job.optimizer.trust;
  json["precision"] = passes::precision_name(job.precision.type);
  json["precision-arithmetic"] = passes::name_of(job.precision.arithmetic);
  json["precision-keep"] = job.precision.keep;
  json["comm-dtype"] = passes::precision_name(job.precision.wire());
  json["conv-algo"] = name_of(job.convolution);
  json["loss-scale"] = job.loss_scale.dynamic ? Json("dynamic") : Json(job.loss_scale.scale);
  if (job.loss_scale.in_use()) {
    json["loss-scale-window"] = job.loss_scale.window;
    json["loss-scale-min"] = job.loss_scale.least;
    json["loss-scale-max"] = job.loss_scale.most;
  }
  if (job.options.head) json["head-parallel"] = name_of(job.options.head->parallel);
  json["plan"] = parallel::to_json(job.plan);
  json["on-bad-record"] = job.data.skip_bad_records ? "skip" : "fail";
  return json;
}

void require_same_job(const Json& recorded, const Json& now,
                      const std::filesystem::path& checkpoint) {
  const Json fixed = value_of(recorded, "fixed");
  for (const auto& [name, value] : now.at("fixed").items()) {
    if (name == "class_names") continue;
    if (value_of(fixed, name) != value) {
      fail_input("‹{}› is {} but checkpoint '{}' was made with {}; use the same to resume.", name,
                 value.dump(), checkpoint.string(), value_of(fixed, name).dump());
    }
  }
  require_same_names(value_of(fixed, "class_names"), value_of(now["fixed"], "class_names"),
                     checkpoint);
}

std::vector<SettingChange> changed_settings(const Json& recorded, const Json& now) {
  std::vector<SettingChange> changes;
  for (const auto& [name, value] : now.items()) {
    if (name != "fixed" && name != "plan")
      note_change(changes, marked_setting(name), recorded, now, name);
  }
  for (const auto& [name, value] : now.at("plan").items()) {
    note_change(changes, "The plan's " + name, value_of(recorded, "plan"), now["plan"], name);
  }
  return changes;
}

std::vector<SettingChange> changed_rates(const Json& recorded, const Json& now) {
  constexpr std::pair<const char*, const char*> kFlags[] = {
      {"‹lr›", "base"},
      {"‹lr_schedule›", "schedule"},
      {"‹lr_final›", "final"},
      {"‹lr_warmup_steps›", "warmup_steps"},
      {"‹lr_milestones›", "milestones"},
      {"‹lr_gamma›", "gamma"},
      {"‹lr_power›", "power"},
      {"The number of steps, which the learning rate depends on,", "total_steps"}};
  const bool by_length = now.at("schedule") == "cosine" || now.at("schedule") == "polynomial";
  std::vector<SettingChange> changes;
  for (const auto& [flag, name] : kFlags) {
    if (name == std::string_view("total_steps") && !by_length) continue;
    note_change(changes, flag, recorded, now, name);
  }
  return changes;
}

Json to_json(const LearningRateSettings& settings) {
  Json json;
  json["schedule"] = name_of(settings.kind);
  json["base"] = settings.base;
  json["final"] = settings.final;
  json["warmup_steps"] = settings.warmup_steps;
  json["milestones"] = settings.milestones;
  json["gamma"] = settings.gamma;
  json["power"] = settings.power;
  json["total_steps"] = settings.total_steps;
  return json;
}

}  // namespace millrace::train
