#include "train/head_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace millrace::train {
namespace {

constexpr const char* kNames[] = {"dp", "mp", "pfc"};

const char* name_of(const HeadChoice& choice) {
  return kNames[static_cast<size_t>(choice.parallel)];
}

std::string bytes_of(double bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

std::string reason_for(const HeadQuestion& question, graph::HeadParallel parallel) {
  switch (parallel) {
    case graph::HeadParallel::dp:
      return "no device waits for the classes of another";
    case graph::HeadParallel::mp:
      return question.devices > 1 ? fmt::format("each device has 1/{} of the {} centres",
                                                question.devices, question.classes)
                                  : std::string("one device has all classes anyway");
    case graph::HeadParallel::pfc:
      return fmt::format("a step computes with {:g} % of the {} classes",
                         100 * question.sample_rate, question.classes);
  }
  return "";
}

}  // namespace

std::string advise_head(const HeadQuestion& question, const std::vector<HeadChoice>& choices) {
  std::vector<HeadChoice> sorted = choices;
  std::stable_sort(sorted.begin(), sorted.end(), [](const HeadChoice& a, const HeadChoice& b) {
    return a.fits != b.fits ? a.fits : a.samples_per_second > b.samples_per_second;
  });
  const std::string limit =
      question.device_memory > 0 ? " into " + bytes_of(question.device_memory) : "";
  if (!sorted.front().fits) {
    const auto least = std::min_element(
        sorted.begin(), sorted.end(),
        [](const HeadChoice& a, const HeadChoice& b) { return a.bytes < b.bytes; });
    return fmt::format(
        "No way of laying out the head fits{}: {}, the smallest, needs {} on each device; use more "
        "‹devices› or ‹head_dtype› bf16.",
        limit, name_of(*least), bytes_of(least->bytes));
  }
  const HeadChoice& best = sorted.front();
  std::string others;
  for (size_t i = 1; i < sorted.size(); ++i) {
    const HeadChoice& other = sorted[i];
    others += i == 1 ? "; " : ", ";
    others += other.fits
                  ? fmt::format("{} makes {:.3g} samples/s with {}", name_of(other),
                                other.samples_per_second, bytes_of(other.bytes))
                  : fmt::format("{} does not fit with {}", name_of(other), bytes_of(other.bytes));
  }
  return fmt::format(
      "‹head_parallel› {} is the fastest that fits{}, {:.3g} samples/s with {} on each device, "
      "because {}{}.",
      name_of(best), limit, best.samples_per_second, bytes_of(best.bytes),
      reason_for(question, best.parallel), others);
}

Json to_json(const std::vector<HeadChoice>& choices) {
  Json json = Json::object();
  for (const HeadChoice& choice : choices) {
    json[name_of(choice)] = {{"samples_per_second", choice.samples_per_second},
                             {"bytes", static_cast<int64_t>(choice.bytes)},
                             {"fits", choice.fits}};
  }
  return json;
}

HeadNeeds head_needs(graph::MarginHeadOptions head, graph::HeadParallel parallel, int devices,
                     int64_t rows, int64_t dimension, int states) {
  const bool divided = parallel != graph::HeadParallel::dp && head.classes >= devices;
  const int64_t local = divided ? (head.classes + devices - 1) / devices : head.classes;
  const double rate = parallel == graph::HeadParallel::pfc ? head.sample_rate : 1;
  const int64_t used = std::max(graph::sampled_classes(rate, local), std::min(rows, local));
  const int64_t blocks = graph::head_cache_blocks(head.cache_bytes, used, rows, dimension);
  if (parallel == graph::HeadParallel::pfc && head.momentum == graph::HeadMomentum::none) {
    states = states == 1 ? 0 : states;
  }
  const bool lazy = rate < 1 && head.momentum == graph::HeadMomentum::lazy && states > 0;
  const int64_t clock = lazy ? (local + graph::kHeadRates) * 4 : 0;
  HeadNeeds needs;
  needs.bytes =
      static_cast<double>(local * dimension * graph::size_of(head.storage) * (1 + states) + clock +
                          blocks * graph::head_block_rows(rows, dimension) * rows * 4);
  needs.operations =
      6.0 * static_cast<double>(used) * static_cast<double>(rows) * static_cast<double>(dimension);
  needs.touched = static_cast<double>(used * dimension * graph::size_of(head.storage) *
                                      (3 + (lazy ? 3 : 2) * states));
  return needs;
}

}  // namespace millrace::train
