#include "cli/tuning_flags.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/pattern.h"
#include "cli/job_flags.h"

namespace millrace::cli {
namespace {

void add_trained_flags(CLI::App& command, TuningFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("What is trained");
  };
  add("--freeze", flags.freeze,
      "Layers that keep their weights, by patterns such as conv1,layer1.*: they cost no gradient, "
      "no state and no backward pass");
  add("--train-only", flags.train_only, "The only layers that are trained, written likewise");
  add("--freeze-epochs", flags.freeze_epochs,
      "Freeze them for so many epochs, and train everything behind that; 0 freezes to the end")
      ->capture_default_str();
  add("--lr-scale", flags.rate_scales,
      "Factors of the learning rate for layers, such as layer4=0.1,fc=10");
  add("--layer-decay", flags.layer_decay,
      "Factor of the learning rate for each block before the last")
      ->capture_default_str();
  command
      .add_flag("--freeze-norms", flags.freeze_norms,
                "Batch norms keep their statistics, scale and bias, as in an evaluation")
      ->group("What is trained");
  add("--class-weights", flags.class_weights,
      "Factors of the loss by class: balanced (rare classes count more), or a file with a number "
      "or "
      "'NAME NUMBER' a line");
}

void add_image_flags(CLI::App& command, TuningFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Data");
  };
  add("--colour-jitter", flags.jitter,
      "Besides, change brightness, contrast and saturation of each training image by a factor of "
      "up "
      "to 1 ± this: one number, or three with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--rand-augment", flags.rand_augment,
      "Besides, RandAugment: N,M makes N drawn changes of strength M, from 0 to 30; 2,9 is usual")
      ->delimiter(',')
      ->allow_extra_args(false);
  add("--mixup", flags.mixup,
      "Besides, mix each training image with another, by shares drawn from Beta(this, this): 0.2")
      ->capture_default_str();
  add("--cutmix", flags.cutmix,
      "Besides, put a rectangle of another image into each, its area drawn from Beta(this, this): "
      "1; with --mixup each batch gets one of the two")
      ->capture_default_str();
  add("--random-erasing", flags.erasing,
      "Besides, blank a rectangle of a training image with this probability")
      ->capture_default_str();
  add("--sampler", flags.sampler,
      "Which images come: shuffled (each once an epoch), or balanced (each class as often as the "
      "others, some images several times)")
      ->capture_default_str();
}

// "layer4=0.1,fc=10" → patterns and factors.
std::vector<passes::RateScale> to_rates(const std::string& text) {
  std::vector<passes::RateScale> rates;
  if (text.empty()) return rates;
  for (const std::string& part : parse_patterns(text, "--lr-scale")) {
    const size_t sign = part.find('=');
    double factor = -1;
    if (sign != std::string::npos) {
      const char* end = part.data() + part.size();
      const auto [stop, status] = std::from_chars(part.data() + sign + 1, end, factor);
      if (status != std::errc() || stop != end) factor = -1;
    }
    if (sign == 0 || !std::isfinite(factor) || factor < 0) {
      fail_input("--lr-scale has '{}'; write PATTERN=FACTOR, such as fc=10.", part);
    }
    rates.push_back({part.substr(0, sign), factor});
  }
  return rates;
}

passes::TrainedSettings to_trained(const TuningFlags& flags) {
  passes::TrainedSettings trained;
  if (!flags.freeze.empty()) trained.freeze = parse_patterns(flags.freeze, "--freeze");
  if (!flags.train_only.empty()) {
    trained.train_only = parse_patterns(flags.train_only, "--train-only");
  }
  trained.rates = to_rates(flags.rate_scales);
  if (!(flags.layer_decay > 0) || flags.layer_decay > 1) {
    fail_input("--layer-decay is {}; give a factor above 0, at most 1.", flags.layer_decay);
  }
  trained.layer_decay = flags.layer_decay;
  trained.freeze_norms = flags.freeze_norms;
  return trained;
}

void set_augmentation(const TuningFlags& flags, train::DataSettings& data) {
  const std::vector<float>& jitter = flags.jitter;
  if (!jitter.empty()) {
    if (jitter.size() != 1 && jitter.size() != 3) {
      fail_input(
          "--colour-jitter has {} numbers; give one, or three: brightness, contrast, saturation.",
          jitter.size());
    }
    for (const float strength : jitter) {
      if (!(strength >= 0) || strength > 1) {
        fail_input("--colour-jitter has {}; give numbers from 0 to 1.", strength);
      }
    }
    data.jitter = {jitter.front(), jitter[jitter.size() / 2], jitter.back()};
  }
  if (!flags.rand_augment.empty()) {
    if (flags.rand_augment.size() != 2) {
      fail_input("--rand-augment has {} numbers; give two, such as 2,9.",
                 flags.rand_augment.size());
    }
    data.rand_augment = {flags.rand_augment[0], flags.rand_augment[1]};
    if (data.rand_augment.operations < 1 || data.rand_augment.operations > 14 ||
        data.rand_augment.magnitude < 0 || data.rand_augment.magnitude >= data::kMagnitudes) {
      fail_input("--rand-augment is {},{}; give 1 to 14 changes of strength 0 to {}.",
                 flags.rand_augment[0], flags.rand_augment[1], data::kMagnitudes - 1);
    }
  }
  if (!(flags.erasing >= 0) || flags.erasing > 1) {
    fail_input("--random-erasing is {}; give a probability from 0 to 1.", flags.erasing);
  }
  data.erasing = flags.erasing;
  constexpr double kMostAlpha = 100;
  for (const auto& [flag, alpha] :
       {std::pair("--mixup", flags.mixup), {"--cutmix", flags.cutmix}}) {
    if (!(alpha >= 0) || alpha > kMostAlpha) {
      fail_input("{} is {}; give a number from 0 to {:g}.", flag, alpha, kMostAlpha);
    }
  }
  data.mix = {flags.mixup, flags.cutmix};
}

}  // namespace

void add_tuning_flags(CLI::App& command, TuningFlags& flags) {
  add_trained_flags(command, flags);
  add_image_flags(command, flags);
}

void apply_tuning(const TuningFlags& flags, train::TrainJob& job) {
  job.trained = to_trained(flags);
  job.freeze_epochs = flags.freeze_epochs;
  set_augmentation(flags, job.data);
  job.second_labels = job.data.mix.enabled();
  job.data.balanced = choose("--sampler", flags.sampler, {"shuffled", "balanced"}) == 1;
}

}  // namespace millrace::cli
