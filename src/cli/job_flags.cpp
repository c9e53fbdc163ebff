#include "cli/job_flags.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/pattern.h"
#include "base/text.h"
#include "cli/flag_names.h"
#include "cli/flag_numbers.h"
#include "train/class_weights.h"
#include "train/job_classes.h"

namespace millrace::cli {
namespace {

constexpr int64_t kMostSamples = int64_t{1} << 20;

}  // namespace

size_t choose(std::string_view flag, const std::string& value,
              const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  const std::string close = nearest(value, choices);
  fail_input("{} is '{}'; choose one of {}{}.", flag, value, fmt::join(choices, ", "),
             close.empty() ? "" : fmt::format(" (did you mean '{}'?)", close));
}

const graph::OptimizerDefinition& choose_optimizer(const std::string& name) {
  std::vector<std::string> names;
  for (const graph::OptimizerDefinition& row : graph::optimizers()) {
    if (row.listed) names.emplace_back(row.name);
  }
  return graph::optimizer_named(names[choose("--optimizer", name, names)]);
}

void add_model_flags(CLI::App& command, JobFlags& flags) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group("Model");
  };
  add("--model", flags.model,
      fmt::format("The network: {}; or onnx:FILE, the network in an ONNX file with its weights. "
                  "Needed where nothing else tells it.",
                  fmt::join(models::model_names(), ", ")));
  add("--classes", flags.classes,
      "Classes to tell apart [as many as the data has; the model's usual number where it does not "
      "tell]");
  add("--image", flags.image, "Height and width of the images in pixels [the model's usual size]");
  add("--channels", flags.channels, "Colours of the images: 3, or 1 for grey [the model's usual]");
}

void add_data_flags(CLI::App& command, JobFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Data");
  };
  add("--data", flags.data,
      "Where images come from: synthetic (random, made once, costs no time), ofrecord:DIR, "
      "recordio:FILE.rec, folder:DIR, idx:DIR or raw:FILE")
      ->capture_default_str();
  add("--augment", flags.augment,
      "Recipe for the images: photo (random crop, flip), face (flip), small (shift, flip), none, "
      "or auto: face for face models, else small up to 64 pixels, else photo")
      ->capture_default_str();
  add("--mean", flags.mean,
      "Taken from each colour of an image, whose values are 0 to 1: one number, or three with "
      "commas "
      "[the recipe's]")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--std", flags.deviation, "What is left is divided by this, written likewise [the recipe's]")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--label-offset", flags.label_offset,
      "Subtracted from each label: 1 for sets that count from 1")
      ->capture_default_str();
  add("--workers", flags.workers, "Threads that read and decode ahead of the training step")
      ->capture_default_str();
  add("--on-bad-record", flags.on_bad_record,
      "What to do with a damaged record: fail (name it and stop) or skip (count it and go on)")
      ->capture_default_str();
}

void add_backend_flags(CLI::App& command, JobFlags& flags) {
  command
      .add_option("--backend", flags.backend,
                  "What the devices are: cpu, or strict, for trials: slow, with queues and memory "
                  "that nobody else can reach")
      ->group("Device and memory")
      ->capture_default_str();
  command
      .add_option(
          "--strict-order", flags.strict_order,
          "When the queues of --backend strict run: lazy, eager, random:SEED or slow:NUMBER [lazy]")
      ->group("Device and memory");
}

void add_device_flags(CLI::App& command, JobFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Device and memory");
  };
  add("--threads-per-device", flags.threads,
      "Threads that compute; 0 divides the cores over the devices")
      ->capture_default_str();
  command
      .add_flag("--oversubscribe", flags.oversubscribe,
                "Let threads share cores where there are too few, which is refused otherwise")
      ->group("Device and memory");
  add("--device-memory", flags.device_memory,
      "Refuse a job that needs more, before it starts: 12066MiB, 16GiB ... [no limit]");
  add("--conv-algo", flags.convolution,
      "Convolutions: auto (what `millrace tune` measured as the fastest, or ought to be), direct, "
      "or "
      "winograd where it applies (mostly faster, takes more memory)")
      ->capture_default_str();
}

namespace {

void add_length_flags(CLI::App& command, JobFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Length");
  };
  add("--batch", flags.batch, "Samples per step and device; a step has this times all devices")
      ->capture_default_str();
  add("--steps", flags.steps, "Train for this many steps");
  add("--epochs", flags.epochs, "Or for this many passes over the data");
  add("--seed", flags.seed, "Same seed, same bits: weights, order, augmentation, dropout")
      ->check(at_least(0))
      ->capture_default_str();
}

// "[0.1; 0.001 for adamw]": that of the first optimizer, and those that have others.
std::string defaults_of(double (*value)(const graph::OptimizerDefinition&)) {
  const double usual = value(graph::optimizers().front());
  std::string text = fmt::format(" [{}", usual);
  for (const graph::OptimizerDefinition& row : graph::optimizers()) {
    if (row.listed && value(row) != usual) text += fmt::format("; {} for {}", value(row), row.name);
  }
  return text + "]";
}

void add_optimizer_flags(CLI::App& command, JobFlags& flags) {
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group("Optimizer");
  };
  const auto of = [](const char* what, const char* flag) {
    return fmt::format("{} ({})", what, graph::optimizer_names(setting_of(flag)));
  };
  add("--optimizer", flags.optimizer, graph::optimizer_names())->capture_default_str();
  add("--lr", flags.learning_rate,
      "Learning rate" + defaults_of([](const auto& row) { return row.learning_rate; }));
  add("--momentum", flags.momentum, of("Memory of earlier gradients", "--momentum"))
      ->capture_default_str();
  command.add_flag("--nesterov", flags.nesterov, of("Nesterov momentum", "--nesterov"))
      ->group("Optimizer");
  add("--weight-decay", flags.weight_decay,
      "Weight decay" + defaults_of([](const auto& row) { return row.weight_decay; }));
  command
      .add_flag("--decay-all", flags.decay_all,
                "Decay biases and batch-norm parameters too, which are exempt otherwise")
      ->group("Optimizer");
  add("--label-smoothing", flags.label_smoothing, "Share of the target spread over all classes")
      ->capture_default_str();
  add("--dropout", flags.dropout, "Dropout layers of the model: on or off")->capture_default_str();
  add("--clip-norm", flags.clip_norm, "Largest norm of all gradients together; 0 is no limit")
      ->capture_default_str();
  command
      .add_flag("--clip-backbone", flags.clip_backbone,
                "Leave the head of a face network out of --clip-norm")
      ->group("Optimizer");
  add("--adam-beta1", flags.adam_beta1, of("Memory of the mean", "--adam-beta1"))
      ->capture_default_str();
  add("--adam-beta2", flags.adam_beta2, of("Memory of the variance", "--adam-beta2"))
      ->capture_default_str();
  add("--adam-epsilon", flags.adam_epsilon,
      of("Added to the deviation", "--adam-epsilon") + " [1e-08]");
  add("--lars-trust", flags.lars_trust, of("Trust coefficient", "--lars-trust"))
      ->capture_default_str();
}

void add_schedule_flags(CLI::App& command, JobFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Learning-rate schedule");
  };
  add("--lr-schedule", flags.schedule,
      "constant; step (times --lr-gamma at each milestone); cosine or polynomial (down to "
      "--lr-final at the end)")
      ->capture_default_str();
  add("--lr-warmup,--lr-warmup-steps", flags.warmup,
      "Rise linearly to --lr over the first steps (500) or epochs (1e)")
      ->capture_default_str();
  add("--lr-milestones", flags.milestones,
      "Steps or epochs at which the rate drops, such as 3000,6000 or 30e,60e")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--lr-gamma", flags.gamma, "Factor at each milestone")->capture_default_str();
  add("--lr-power", flags.power, "Exponent of polynomial")->capture_default_str();
  add("--lr-final", flags.final_rate, "Rate at the end of cosine and polynomial")
      ->capture_default_str();
}

}  // namespace

void add_training_flags(CLI::App& command, JobFlags& flags) {
  add_plan_flags(command, flags.plan);
  add_length_flags(command, flags);
  add_precision_flags(command, flags.precision);
  add_head_flags(command, flags.head);
  add_optimizer_flags(command, flags);
  add_tuning_flags(command, flags.tuning);
  add_schedule_flags(command, flags);
  add_scale_flags(command, flags.scale);
  command
      .add_option("--recompute", flags.recompute,
                  "Compute activations again in the backward pass instead of keeping them: none, "
                  "cheap (batch norms, activations), all (convolutions too, for the least memory), "
                  "auto (cheap where it saves memory, more only if --device-memory demands it)")
      ->group("Device and memory")
      ->capture_default_str();
  command
      .add_option("--dump-passes", flags.dump_passes,
                  "Write the graph after each compiler pass into this directory")
      ->group("Device and memory");
  command
      .add_flag(
          "--check-finite", flags.check_finite,
          "Look at everything that a step computes, not at the loss alone, and name the first "
          "tensor with a value that is not finite")
      ->group("Device and memory");
  for (const char* name : {"--batch", "--precision", "--comm-dtype", "--recompute",
                           "--head-parallel", "--sample-rate"}) {
    command.get_option(name)->each(
        [&flags, name](const std::string&) { flags.typed.insert(name); });
  }
}

namespace {

// "500" or "3e"; `in_epochs` says which.
int64_t to_moment(const std::string& text, std::string_view flag, bool& in_epochs) {
  in_epochs = text.ends_with('e');
  const char* end = text.data() + text.size() - (in_epochs ? 1 : 0);
  int64_t number = 0;
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc() || stop != end || text.empty()) {
    fail_input("{} has '{}'; give steps (500) or epochs (3e).", flag, text);
  }
  return number;
}

void set_moments(const JobFlags& flags, train::LearningRateSettings& settings) {
  settings.warmup_steps = to_moment(flags.warmup, "--lr-warmup-steps", settings.warmup_in_epochs);
  for (const std::string& text : flags.milestones) {
    bool in_epochs = false;
    settings.milestones.push_back(to_moment(text, "--lr-milestones", in_epochs));
    if (settings.milestones.size() > 1 && in_epochs != settings.milestones_in_epochs) {
      fail_input("--lr-milestones has steps and epochs; give one of the two.");
    }
    settings.milestones_in_epochs = in_epochs;
  }
}

constexpr float kMostOfColour = 4;  // more is meant for values from 0 to 255

// One number for all colours, or one for each; nothing if none was given.
std::optional<std::array<float, 3>> to_colours(const std::vector<float>& numbers,
                                               std::string_view flag) {
  if (numbers.empty()) return {};
  if (numbers.size() != 1 && numbers.size() != 3) {
    fail_input("{} has {} numbers; give one, or one for each of three colours.", flag,
               numbers.size());
  }
  std::array<float, 3> colours = {};
  for (size_t i = 0; i < colours.size(); ++i) {
    colours[i] = numbers[numbers.size() == 1 ? 0 : i];
    if (!std::isfinite(colours[i]) || (flag == "--std" && colours[i] <= 0)) {
      fail_input("{} has {}; images have values from 0 to 1, and their deviation is above 0.", flag,
                 colours[i]);
    }
    if (std::abs(colours[i]) > kMostOfColour) {
      fail_input("{} has {}; images have values from 0 to 1, so divide it by 255.", flag,
                 colours[i]);
    }
  }
  return colours;
}

}  // namespace

JobFlags with_plan_file(JobFlags flags) {
  const std::string& path = flags.plan.plan_file;
  if (path.empty()) return flags;
  const parallel::PlanFile file = read_plan_file(path);
  const auto take = [&](const char* name, auto& value, const auto& planned) {
    if (!flags.typed.insert(name).second && value != planned) {
      fail_input("{} is {}, but --plan '{}' says {}; leave the flag out, or change the plan.", name,
                 value, path, planned);
    }
    value = planned;
  };
  const auto text = [](std::string_view name) { return std::string(name); };
  const parallel::PlanPurpose& purpose = file.made_for;
  if (flags.model.empty()) flags.model = purpose.model;
  if (!purpose.model.empty() && flags.model != purpose.model) {
    fail_input("--plan '{}' was made for {}, not for {}.", path, purpose.model, flags.model);
  }
  if (purpose.batch > 0 && !flags.typed.contains("--batch")) flags.batch = purpose.batch;
  PrecisionFlags& precision = flags.precision;
  if (file.precision) {
    take("--precision", precision.precision, text(passes::precision_name(*file.precision)));
  }
  if (file.wire)
    take("--comm-dtype", precision.communication, text(passes::precision_name(*file.wire)));
  if (file.recompute)
    take("--recompute", flags.recompute, text(parallel::name_of_policy(*file.recompute)));
  if (file.head) {
    take("--head-parallel", flags.head.parallel,
         text(parallel::name_of_division(file.head->parallel)));
    if (file.head->parallel == graph::HeadParallel::pfc) {
      take("--sample-rate", flags.head.sample_rate, file.head->sample_rate);
    }
  }
  return flags;
}

train::TrainJob to_job(const JobFlags& typed, int processes) {
  const JobFlags flags = with_plan_file(typed);
  if (flags.model.empty()) {
    fail_input("--model is missing; choose one of {}.", fmt::join(models::model_names(), ", "));
  }
  if (models::onnx_file(flags.model).empty()) choose("--model", flags.model, models::model_names());
  train::TrainJob job;
  job.model = flags.model;
  job.options = models::default_options(flags.model);
  job.plan = to_plan(flags.plan, processes);
  if (flags.batch < 1 || flags.batch > kMostSamples) {
    fail_input("--batch is {}; give 1 to {}.", flags.batch, kMostSamples);
  }
  const auto devices = static_cast<int64_t>(job.plan.devices().size());
  job.options.batch = flags.global_batch.value_or(flags.batch * devices);
  if (job.options.batch < 1 || job.options.batch % devices != 0 ||
      job.options.batch > kMostSamples * devices) {
    fail_input("--global-batch is {}; give a multiple of the {} devices, at most {} for each.",
               job.options.batch, devices, kMostSamples);
  }
  job.options.classes = flags.classes.value_or(job.options.classes);
  job.options.image = flags.image.value_or(job.options.image);
  job.options.channels = flags.channels.value_or(job.options.channels);
  job.options.dropout = choose("--dropout", flags.dropout, {"off", "on"}) == 1;
  job.options.label_smoothing = flags.label_smoothing;
  job.data = {
      .source = flags.data,
      .augment = flags.augment,
      .label_offset = flags.label_offset,
      .workers = flags.workers,
      .skip_bad_records = choose("--on-bad-record", flags.on_bad_record, {"fail", "skip"}) == 1};
  if (!(flags.valid_share >= 0) || flags.valid_share >= 1) {
    fail_input("--valid-share is {}; give a share from 0 to below 1.", flags.valid_share);
  }
  job.data.valid_share = flags.valid_share;
  apply_tuning(flags.tuning, job);
  job.data.mean = to_colours(flags.mean, "--mean");
  job.data.deviation = to_colours(flags.deviation, "--std");
  train::follow_training_data(job, flags.classes.has_value());
  job.options.head = to_head(flags.head, job.options.classes);
  if (job.options.head && job.options.head->margin != graph::HeadMargin::fixed &&
      job.options.head->margin != graph::HeadMargin::magnitude && job.plan.micro_batches > 1) {
    fail_input("--head {} looks at whole steps, which micro-batches divide; give --microbatches 1.",
               flags.head.head);
  }
  if (!flags.plan.plan_file.empty() && !job.options.head &&
      flags.typed.contains("--head-parallel")) {
    fail_input("--plan '{}' divides a margin head; --head says which one.", flags.plan.plan_file);
  }
  if (job.options.head && job.options.head->momentum == graph::HeadMomentum::none &&
      choose_optimizer(flags.optimizer).states.size() > 1) {
    fail_input("--head-momentum none is for {}; {} cannot do without its moments.",
               graph::optimizer_names("momentum"), flags.optimizer);
  }
  job.steps = flags.steps;
  job.epochs = flags.epochs;
  job.seed = flags.seed;
  if (!flags.tuning.class_weights.empty()) {
    job.class_weights = train::class_weights_of(job, flags.tuning.class_weights);
  }
  job.threads = flags.threads;
  job.oversubscribe = flags.oversubscribe;
  job.backend = backend::parse_backend(flags.backend, flags.strict_order);
  if (!flags.device_memory.empty()) {
    job.device_memory = static_cast<int64_t>(parse_bytes(flags.device_memory, "--device-memory"));
    if (job.device_memory == 0) fail_input("--device-memory must be above 0.");
  }
  constexpr passes::RecomputePolicy kPolicies[] = {
      passes::RecomputePolicy::automatic, passes::RecomputePolicy::none,
      passes::RecomputePolicy::cheap, passes::RecomputePolicy::all};
  job.recompute =
      kPolicies[choose("--recompute", flags.recompute, {"auto", "none", "cheap", "all"})];
  constexpr kernels::ConvolutionAlgorithm kAlgorithms[] = {kernels::ConvolutionAlgorithm::automatic,
                                                           kernels::ConvolutionAlgorithm::direct,
                                                           kernels::ConvolutionAlgorithm::winograd};
  job.convolution =
      kAlgorithms[choose("--conv-algo", flags.convolution, {"auto", "direct", "winograd"})];
  job.precision = to_precision(flags.precision);
  job.loss_scale = to_loss_scale(flags.scale, job.precision.wire() == graph::DataType::f16 ||
                                                  job.precision.type == graph::DataType::f16);
  job.inject_overflow = to_faults(flags.scale);
  job.dump_passes = flags.dump_passes;
  job.check_finite = flags.check_finite;

  const graph::OptimizerDefinition& row = choose_optimizer(flags.optimizer);
  job.optimizer.name = row.name;
  job.optimizer.momentum = flags.momentum;
  job.optimizer.nesterov = flags.nesterov;
  job.optimizer.weight_decay = flags.weight_decay.value_or(row.weight_decay);
  job.optimizer.decay_all = flags.decay_all;
  job.optimizer.clip_norm = flags.clip_norm;
  job.optimizer.clip_backbone = flags.clip_backbone;
  job.optimizer.beta1 = flags.adam_beta1;
  job.optimizer.beta2 = flags.adam_beta2;
  job.optimizer.epsilon = flags.adam_epsilon.value_or(1e-8);
  job.optimizer.trust = flags.lars_trust;

  using RateSchedule = train::LearningRateSettings::Kind;
  constexpr RateSchedule kSchedules[] = {RateSchedule::constant, RateSchedule::step,
                                         RateSchedule::cosine, RateSchedule::polynomial};
  job.learning_rate.kind = kSchedules[choose("--lr-schedule", flags.schedule,
                                             {"constant", "step", "cosine", "polynomial"})];
  job.learning_rate.base = flags.learning_rate.value_or(row.learning_rate);
  if (const auto rate = flags.head.learning_rate) {
    if (!(*rate >= 0) || !std::isfinite(*rate) || !(job.learning_rate.base > 0)) {
      fail_input("--head-lr is {} beside --lr {}; give a rate of 0 or more, and --lr above 0.",
                 *rate, job.learning_rate.base);
    }
    job.trained.head_rate = *rate / job.learning_rate.base;
  }
  job.learning_rate.final = flags.final_rate;
  set_moments(flags, job.learning_rate);
  job.learning_rate.gamma = flags.gamma;
  job.learning_rate.power = flags.power;
  return job;
}

}  // namespace millrace::cli
