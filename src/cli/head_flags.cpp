#include "cli/head_flags.h"

#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "cli/job_flags.h"

namespace millrace::cli {
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

// Two numbers of the heads whose margins follow from the sample, or those that are usual.
void set_sample_margin(const HeadFlags& flags, graph::MarginHeadOptions& options) {
  const bool is_quality = options.margin == graph::HeadMargin::quality;
  options.addend = is_quality ? 0.4 : 0.45;
  options.strength = is_quality ? 0.333 : 0.8;
  if (flags.margin.empty()) return;
  const std::vector<double> numbers = parse_margin(flags.margin);
  if (numbers.size() > 2 || (numbers.size() < 2 && !is_quality)) {
    fail_input("--margin has {} numbers; --head {} takes {}.", numbers.size(), flags.head,
               is_quality ? "one or two" : "two");
  }
  options.addend = numbers[0];
  if (numbers.size() == 2) options.strength = numbers[1];
  if (!(numbers.back() >= 0) || numbers.back() > 3) {
    fail_input("--margin has {}; give numbers from 0 to 3.", numbers.back());
  }
}

// ArcFace, CosFace and CurricularFace take one number, or all three.
void set_margin(const HeadFlags& flags, graph::MarginHeadOptions& options) {
  if (flags.head == "adaface") options.margin = graph::HeadMargin::quality;
  if (flags.head == "magface") options.margin = graph::HeadMargin::magnitude;
  if (flags.head == "curricularface") options.margin = graph::HeadMargin::curriculum;
  if (options.margin == graph::HeadMargin::quality ||
      options.margin == graph::HeadMargin::magnitude) {
    return set_sample_margin(flags, options);
  }
  if (options.margin == graph::HeadMargin::curriculum) options.addend = 0.5;
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
    (flags.head == "cosface" ? options.subtrahend : options.addend) = numbers[0];
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
void check_margin(const graph::MarginHeadOptions& options) {
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
      "(subtracts from the cosine), combined, adaface (by the image's quality), magface (by the "
      "embedding's length) or curricularface (arcface, and hard classes count more later) [a plain "
      "linear classifier]");
  add("--margin", flags.margin,
      "The margin: one number, or m1,m2,m3 of cos(m1 angle + m2) - m3 [arcface 0.5, cosface 0.4, "
      "curricularface 0.5]; adaface: m,h [0.4,0.333]; magface: that of short and of long "
      "embeddings [0.45,0.8]");
  add("--head-lr", flags.learning_rate,
      "Learning rate of the head, which follows the schedule of --lr [that of all]");
  add("--head-filter", flags.filter,
      "Other identities whose cosine is above this are taken for the same person under another "
      "name, and do not count: 0.4; 0 takes none")
      ->capture_default_str();
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
  add("--head-momentum", flags.momentum,
      "Momentum of centres that a step of pfc leaves out: lazy (moves them and fades, as if all "
      "took "
      "part), none (centres have no momentum, and steps as large as it would make them) or frozen")
      ->capture_default_str();
  add("--head-dtype", flags.storage, "Storage of centres and their state: fp32, bf16 or fp16")
      ->capture_default_str();
}

std::optional<graph::MarginHeadOptions> to_head(const HeadFlags& flags, int64_t classes) {
  if (flags.head.empty()) return {};
  choose("--head", flags.head,
         {"softmax", "arcface", "cosface", "combined", "adaface", "magface", "curricularface"});
  graph::MarginHeadOptions options;
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
  if (!(flags.filter >= 0 && flags.filter < 1)) {
    fail_input("--head-filter is {}; give a cosine above 0 and below 1, or 0.", flags.filter);
  }
  options.filter = flags.filter;
  options.exact_gradient = choose("--head-gradient", flags.gradient, {"plain", "exact"}) == 1;
  constexpr graph::HeadParallel kModes[] = {graph::HeadParallel::dp, graph::HeadParallel::mp,
                                            graph::HeadParallel::pfc};
  options.parallel = kModes[choose("--head-parallel", flags.parallel, {"dp", "mp", "pfc"})];
  options.sample_rate = options.parallel == graph::HeadParallel::pfc ? flags.sample_rate : 1;
  constexpr graph::HeadMomentum kMomenta[] = {graph::HeadMomentum::lazy, graph::HeadMomentum::none,
                                              graph::HeadMomentum::frozen};
  options.momentum =
      kMomenta[choose("--head-momentum", flags.momentum, {"lazy", "none", "frozen"})];
  options.storage = head_storage(flags.storage);
  if (options.margin == graph::HeadMargin::curriculum && options.sample_rate < 1) {
    fail_input("--head curricularface looks at all classes; choose --head-parallel dp or mp.");
  }
  if (options.margin == graph::HeadMargin::curriculum && options.filter > 0) {
    fail_input("--head-filter leaves out the classes that --head curricularface counts more.");
  }
  return options;
}

graph::DataType head_storage(const std::string& text) {
  constexpr graph::DataType kTypes[] = {graph::DataType::f32, graph::DataType::bf16,
                                        graph::DataType::f16};
  return kTypes[choose("--head-dtype", text, {"fp32", "bf16", "fp16"})];
}

}  // namespace millrace::cli
