#include "train/job.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "comm/mpi_group.h"

namespace millrace::train {
namespace {

constexpr int kMostWorkers = 1024;
constexpr int64_t kMostSteps = int64_t{1} << 40;

void require_range(std::string_view flag, double value, double lowest, double highest) {
  if (!std::isfinite(value) || value < lowest || value > highest) {
    fail_input("{} is {}; it must lie between {} and {}.", flag, value, lowest, highest);
  }
}

// A share of what is remembered from step to step: with all of it, nothing new ever counts.
void require_below_one(std::string_view flag, double value) {
  if (!(value >= 0 && value < 1)) {
    fail_input("{} is {}; it must be at least 0 and below 1.", flag, value);
  }
}

void require_positive(std::string_view flag, double value, double highest) {
  if (!(value > 0 && value <= highest)) {
    fail_input("{} is {}; it must be above 0 and at most {}.", flag, value, highest);
  }
}

void require_count(std::string_view flag, int64_t value, int64_t lowest, int64_t highest) {
  if (value < lowest || value > highest) {
    fail_input("{} is {}; it must lie between {} and {}.", flag, value, lowest, highest);
  }
}

void require_at_least(std::string_view flag, int64_t value, int64_t lowest) {
  if (value < lowest) fail_input("{} is {}; it must be at least {}.", flag, value, lowest);
}

void check_optimizer(const passes::OptimizerSettings& settings) {
  require_below_one("‹momentum›", settings.momentum);
  require_range("‹weight_decay›", settings.weight_decay, 0, 1e6);
  require_below_one("‹adam_beta1›", settings.beta1);
  require_below_one("‹adam_beta2›", settings.beta2);
  require_positive("‹adam_epsilon›", settings.epsilon, 1);
  require_positive("‹lars_trust›", settings.trust, 1e6);
  require_range("‹clip_norm›", settings.clip_norm, 0, 1e30);
  if (settings.nesterov && settings.momentum == 0) {
    fail_input("‹nesterov› needs a ‹momentum› above 0.");
  }
}

void check_loss_scale(const StepSettings& job) {
  check(job.loss_scale);
  if (job.inject_overflow.empty()) return;
  if (!job.loss_scale.in_use()) {
    fail_input("‹inject_overflow› needs ‹loss_scale› dynamic, or a number other than 1.");
  }
  const auto devices = static_cast<int>(job.plan.devices().size());
  for (const InjectedOverflow& fault : job.inject_overflow) {
    require_at_least("‹inject_overflow› STEP", fault.step, 1);
    if (fault.device < 0 || fault.device >= devices) {
      fail_input("‹inject_overflow› names device {}, but the job has {}, counted from 0.",
                 fault.device, devices);
    }
  }
}

// The second part of the job goes on from a checkpoint of the first.
void check_freeze_epochs(const TrainJob& job) {
  require_count("‹freeze_epochs›", job.freeze_epochs, 0, kMostSteps);
  if (job.trained.freeze.empty() && job.trained.train_only.empty()) {
    fail_input("‹freeze_epochs› needs ‹freeze› or ‹train_only›, which say what is frozen so long.");
  }
  if (job.data.source == "synthetic") {
    fail_input("‹freeze_epochs› means nothing with ‹data› synthetic, which has no epochs.");
  }
  if (job.processes != nullptr && job.processes->size() > 1) {
    fail_input("‹freeze_epochs› is for one process; freeze in one job and go on with another.");
  }
  if (job.checkpoint.empty()) {
    fail_input("‹freeze_epochs› goes on from a checkpoint; give ‹checkpoint›, a directory for it.");
  }
}

// The best is judged by something that is measured.
void check_metric(const RunSettings& job) {
  const bool of_faces = is_of_faces(metric_named(job.metric));
  if (of_faces && job.verification.empty()) {
    fail_input("‹metric› {} needs ‹eval_verification›.", job.metric);
  }
  if (!of_faces && job.evaluation_data.empty()) {
    fail_input("‹metric› {} needs ‹eval_data› or ‹valid_share›; ‹eval_verification› has {}.",
               job.metric, fmt::join(face_metric_names(), ", "));
  }
}

}  // namespace

bool Interval::due(int64_t step, int64_t steps_per_epoch) const {
  if (steps > 0 && step % steps == 0) return true;
  return epochs > 0 && steps_per_epoch > 0 && step % (epochs * steps_per_epoch) == 0;
}

Interval parse_interval(std::string_view text, std::string_view flag) {
  const bool in_epochs = text.ends_with('e');
  const std::string_view digits = in_epochs ? text.substr(0, text.size() - 1) : text;
  int64_t number = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (status != std::errc() || end != digits.data() + digits.size() || number < 1 ||
      number > kMostSteps) {
    fail_input("{} is '{}'; write a number of steps such as 500, or of epochs such as 2e.", flag,
               text);
  }
  return in_epochs ? Interval{.epochs = number} : Interval{.steps = number};
}

void check(const TrainJob& job) {
  require_at_least("‹batch›", job.options.batch, 1);
  require_at_least("‹classes›", job.options.classes, 1);
  require_at_least("‹image›", job.options.image, 1);
  require_at_least("‹channels›", job.options.channels, 1);
  require_at_least("‹threads_per_device›", job.threads, 0);
  require_count("‹workers›", job.data.workers, 1, kMostWorkers);
  require_count("‹label_offset›", job.data.label_offset, -kMostSteps, kMostSteps);
  require_at_least("‹keep›", job.keep, 1);
  require_range("‹label_smoothing›", job.options.label_smoothing, 0, 1);
  check_optimizer(job.optimizer);
  check(job.learning_rate);
  check_loss_scale(job);
  if (job.steps > 0 && job.epochs > 0) fail_input("Give either ‹steps› or ‹epochs›, not both.");
  require_count("‹steps›", job.steps, 0, kMostSteps);
  require_count("‹epochs›", job.epochs, 0, kMostSteps);
  if (job.steps + job.epochs == 0) {
    fail_input("Say how long to train: ‹steps› N or ‹epochs› N, above 0.");
  }
  const bool synthetic = job.data.source == "synthetic";
  if (synthetic && job.epochs > 0) {
    fail_input("‹epochs› means nothing with ‹data› synthetic, which has no end; use ‹steps›.");
  }
  if (synthetic && (job.checkpoint_every.epochs > 0 || job.evaluation_every.epochs > 0)) {
    fail_input(
        "‹data› synthetic has no epochs; count ‹checkpoint_every› and ‹eval_every› in steps.");
  }
  if (job.checkpoint.empty() && job.resume) {
    fail_input("‹resume› needs ‹checkpoint›, the directory to continue from.");
  }
  if (job.checkpoint.empty() &&
      (job.checkpoint_every.steps > 0 || job.checkpoint_every.epochs > 0)) {
    fail_input("‹checkpoint_every› needs ‹checkpoint›, the directory to write to.");
  }
  if (job.options.head && !job.evaluation_data.empty()) {
    fail_input(
        "‹eval_data› measures a linear classifier; a model with ‹head› is measured by "
        "‹eval_verification›.");
  }
  if (job.options.head && job.options.label_smoothing != 0) {
    fail_input("‹label_smoothing› does nothing to a margin head; leave it out with ‹head›.");
  }
  if (!job.evaluates() && (job.evaluation_every.steps > 0 || job.evaluation_every.epochs > 0)) {
    fail_input("‹eval_every› needs ‹eval_data›.");
  }
  if (job.freeze_epochs != 0) check_freeze_epochs(job);
  const bool has_name = !job.network && !job.model.empty();
  if (has_name && !models::is_face_model(job.model)) {
    if (!job.verification.empty()) {
      fail_input("‹eval_verification› compares embeddings, which {} does not make.", job.model);
    }
    if (job.optimizer.clip_backbone || job.trained.head_rate != 1) {
      fail_input("{} is for face networks; {} has no head of its own.",
                 job.optimizer.clip_backbone ? "‹clip_backbone›" : "‹head_lr›", job.model);
    }
  }
  if (job.evaluates()) check_metric(job);
}

}  // namespace millrace::train
