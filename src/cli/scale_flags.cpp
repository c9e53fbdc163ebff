#include "cli/scale_flags.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace millrace::cli {
namespace {

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  return status == std::errc() && stop == end && !text.empty();
}

}  // namespace

void add_scale_flags(CLI::App& command, ScaleFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Loss scale");
  };
  add("--loss-scale", flags.scale,
      "Multiply gradients so that small ones survive 16 bits: a number, or dynamic (halve on "
      "overflow, which skips the step; double after a while) [dynamic where --precision or "
      "--comm-dtype is fp16, else 1]");
  add("--loss-scale-window", flags.window, "Steps in a row without overflow that double it")
      ->capture_default_str();
  add("--loss-scale-min", flags.least, "Never below this (dynamic)")->capture_default_str();
  add("--loss-scale-max", flags.most, "Never above this (dynamic) [16777216]");
  add("--inject-overflow", flags.inject,
      "For trials: let a gradient become infinite at STEP, or STEP:DEVICE (counted from 0), on one "
      "device; several with commas")
      ->delimiter(',')
      ->allow_extra_args(false);
}

train::LossScaleSettings to_loss_scale(const ScaleFlags& flags, bool needs_scale) {
  train::LossScaleSettings settings;
  settings.window = flags.window;
  settings.least = flags.least;
  settings.most = flags.most;
  settings.dynamic = flags.scale.empty() ? needs_scale : flags.scale == "dynamic";
  settings.scale = settings.dynamic ? train::kFirstLossScale : 1;
  if (settings.dynamic || flags.scale.empty()) return settings;
  if (!read_number(flags.scale, settings.scale)) {
    fail_input("--loss-scale is '{}'; write dynamic, or a number such as 1024.", flags.scale);
  }
  return settings;
}

std::vector<train::InjectedOverflow> to_faults(const ScaleFlags& flags) {
  std::vector<train::InjectedOverflow> faults;
  for (const std::string& text : flags.inject) {
    const std::vector<std::string> parts = split(text, ':');
    train::InjectedOverflow fault;
    const bool valid = parts.size() <= 2 && read_number(parts[0], fault.step) &&
                       (parts.size() == 1 || read_number(parts[1], fault.device));
    if (!valid) {
      fail_input("--inject-overflow is '{}'; write STEP or STEP:DEVICE, such as 3 or 3:1.", text);
    }
    faults.push_back(fault);
  }
  return faults;
}

}  // namespace millrace::cli
