#include "cli/head_flags.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/job_flags.h"

namespace millrace {
namespace {

std::vector<double> parse_margin(const std::string& text) {
  std::vector<double> numbers;
  for (const std::string& part : split(text, ',')) {
    double number = 0;
    const char* end = part.data() + part.size();
    const auto [stop, status] = std::from_chars(part.data(), end, number);
    if (status != std::errc() || stop != end || !std::isfinite(number)) {
      fail_input("--margin is '{}'; write a number such as 0.5, or three such as 1,0.3,0.2.", text);
    }
    numbers.push_back(number);
  }
  return numbers;
}

// ArcFace and CosFace take one number, or all three.
void set_margin(const HeadFlags& flags, MarginHeadOptions& options) {
  if (flags.head == "arcface") options.addend = 0.5;
  if (flags.head == "cosface") options.subtrahend = 0.4;
  if (flags.margin.empty()) {
    if (flags.head == "combined") {
      fail_input("--head combined needs --margin m1,m2,m3, such as 1,0.3,0.2.");
    }
    return;
  }
  if (flags.head == "softmax") fail_input("--head softmax has no margin; leave --margin out.");
  const std::vector<double> numbers = parse_margin(flags.margin);
  if (numbers.size() == 1 && flags.head != "combined") {
    (flags.head == "arcface" ? options.addend : options.subtrahend) = numbers[0];
  } else if (numbers.size() == 3) {
    options.multiplier = numbers[0];
    options.addend = numbers[1];
    options.subtrahend = numbers[2];
  } else {
    fail_input("--margin has {} numbers; --head {} takes {}.", numbers.size(), flags.head,
               flags.head == "combined" ? "three" : "one or three");
  }
}

// Angles beyond a half turn, and cosines beyond their range, have no meaning.
void check_margin(const MarginHeadOptions& options) {
  const auto require = [](const char* what, double value, double lowest, double highest) {
    if (value < lowest || value > highest) {
      fail_input("--margin has {} {}; it must lie between {} and {}.", what, value, lowest,
                 highest);
    }
  };
  require("m1 =", options.multiplier, 0.01, 10);
  require("m2 =", options.addend, -3.1416, 3.1416);
  require("m3 =", options.subtrahend, -2, 2);
}

}  // namespace

void add_head_flags(CLI::App& command, HeadFlags& flags) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Head of a face model");
  };
  add("--head", flags.head,
      "Train centres on the unit sphere: softmax (no margin), arcface (adds to the angle), cosface "
      "(subtracts from the cosine) or combined [a plain linear classifier]");
  add("--margin", flags.margin,
      "The margin: one number, or m1,m2,m3 of cos(m1 angle + m2) - m3 [arcface 0.5, cosface 0.4]");
  add("--scale", flags.scale, "Factor on the cosines")->capture_default_str();
  add("--head-gradient", flags.gradient,
      "Gradient of the target: exact, or plain as if there were no margin (as InsightFace does)")
      ->capture_default_str();
  add("--head-parallel", flags.parallel,
      "dp: every device has all centres; mp: the centres are divided over the devices; pfc: as mp, "
      "and a step uses only a sample of them")
      ->capture_default_str();
  add("--sample-rate", flags.sample_rate, "Share of the identities in a step of pfc")
      ->capture_default_str();
  add("--head-dtype", flags.storage, "Storage of centres and their state: fp32, bf16 or fp16")
      ->capture_default_str();
}

std::optional<MarginHeadOptions> to_head(const HeadFlags& flags, int64_t classes) {
  if (flags.head.empty()) return {};
  choose("--head", flags.head, {"softmax", "arcface", "cosface", "combined"});
  MarginHeadOptions options;
  options.classes = classes;
  set_margin(flags, options);
  check_margin(options);
  if (!(flags.scale > 0 && flags.scale <= 1e4)) {
    fail_input("--scale is {}; it must be above 0 and at most 10000.", flags.scale);
  }
  if (!(flags.sample_rate > 0 && flags.sample_rate <= 1)) {
    fail_input("--sample-rate is {}; it must be above 0 and at most 1.", flags.sample_rate);
  }
  options.scale = flags.scale;
  options.exact_gradient = choose("--head-gradient", flags.gradient, {"plain", "exact"}) == 1;
  constexpr HeadParallel kModes[] = {HeadParallel::dp, HeadParallel::mp, HeadParallel::pfc};
  options.parallel = kModes[choose("--head-parallel", flags.parallel, {"dp", "mp", "pfc"})];
  options.sample_rate = options.parallel == HeadParallel::pfc ? flags.sample_rate : 1;
  options.storage = head_storage(flags.storage);
  return options;
}

DataType head_storage(const std::string& text) {
  constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f16};
  return kTypes[choose("--head-dtype", text, {"fp32", "bf16", "fp16"})];
}

}  // namespace millrace
