#include "train/job_record.h"

#include "base/error.h"

namespace millrace {
namespace {

std::string_view name_of(OptimizerSettings::Kind kind) {
  switch (kind) {
    case OptimizerSettings::Kind::sgd:
      return "sgd";
    case OptimizerSettings::Kind::adamw:
      return "adamw";
    case OptimizerSettings::Kind::lars:
      return "lars";
  }
  return "?";
}

std::string_view name_of(ConvolutionAlgorithm algorithm) {
  switch (algorithm) {
    case ConvolutionAlgorithm::automatic:
      return "auto";
    case ConvolutionAlgorithm::direct:
      return "direct";
    case ConvolutionAlgorithm::winograd:
      return "winograd";
  }
  return "?";
}

std::string_view name_of(HeadParallel parallel) {
  switch (parallel) {
    case HeadParallel::dp:
      return "dp";
    case HeadParallel::mp:
      return "mp";
    case HeadParallel::pfc:
      return "pfc";
  }
  return "?";
}

std::string_view name_of(HeadMomentum momentum) {
  switch (momentum) {
    case HeadMomentum::lazy:
      return "lazy";
    case HeadMomentum::none:
      return "none";
    case HeadMomentum::frozen:
      return "frozen";
  }
  return "?";
}

Json describe_head(const MarginHeadOptions& head) {
  return {{"margin", {head.multiplier, head.addend, head.subtrahend}},
          {"scale", head.scale},
          {"exact_gradient", head.exact_gradient},
          {"parallel", name_of(head.parallel)},
          {"sample_rate", head.sample_rate},
          {"momentum", name_of(head.momentum)},
          {"dtype", millrace::name_of(head.storage)}};
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
  fixed["optimizer"] = name_of(job.optimizer.kind);
  if (job.options.head) fixed["head"] = describe_head(*job.options.head);
  json["data"] = job.data.source;
  json["label-offset"] = job.data.label_offset;
  json["augment"] = job.data.augment;
  json["dropout"] = job.options.dropout;
  json["label-smoothing"] = job.options.label_smoothing;
  json["momentum"] = job.optimizer.momentum;
  json["nesterov"] = job.optimizer.nesterov;
  json["weight-decay"] = job.optimizer.weight_decay;
  json["decay-all"] = job.optimizer.decay_all;
  json["clip-norm"] = job.optimizer.clip_norm;
  json["adam-beta1"] = job.optimizer.beta1;
  json["adam-beta2"] = job.optimizer.beta2;
  json["adam-epsilon"] = job.optimizer.epsilon;
  json["lars-trust"] = job.optimizer.trust;
  json["precision"] = precision_name(job.precision.type);
  json["precision-arithmetic"] = millrace::name_of(job.precision.arithmetic);
  json["precision-keep"] = job.precision.keep;
  json["comm-dtype"] = precision_name(job.precision.wire());
  json["conv-algo"] = name_of(job.convolution);
  if (job.loss_scale.in_use()) {
    json["loss-scale"] = job.loss_scale.dynamic ? Json("dynamic") : Json(job.loss_scale.scale);
    json["loss-scale-window"] = job.loss_scale.window;
    json["loss-scale-min"] = job.loss_scale.least;
    json["loss-scale-max"] = job.loss_scale.most;
  }
  json["on-bad-record"] = job.data.skip_bad_records ? "skip" : "fail";
  return json;
}

std::vector<std::string> compare_jobs(const Json& recorded, const Json& now,
                                      const std::filesystem::path& checkpoint) {
  const auto value_of = [](const Json& json, const std::string& name) {
    return json.is_object() && json.contains(name) ? json[name] : Json();
  };
  const Json fixed = value_of(recorded, "fixed");
  for (const auto& [name, value] : now.at("fixed").items()) {
    if (value_of(fixed, name) != value) {
      fail_input("--{} is {} but checkpoint '{}' was made with {}; use the same to resume.", name,
                 value.dump(), checkpoint.string(), value_of(fixed, name).dump());
    }
  }
  std::vector<std::string> different;
  for (const auto& [name, value] : now.items()) {
    if (name != "fixed" && value_of(recorded, name) != value) different.push_back(name);
  }
  return different;
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

}  // namespace millrace
