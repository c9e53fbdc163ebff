#include "kernels/head/sampling.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace millrace::kernels {
namespace {

constexpr uint64_t kSampleStream = 0x73616D706C65;
// Where the parts of the tensor start.
constexpr int64_t kCount = 0;
constexpr int64_t kPositives = 1;
constexpr int64_t kKey = 2;
constexpr int64_t kTargets = 4;

void check_labels(const graph::ClassRange& range, std::span<const int32_t> labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= range.classes) {
      fail_input(
          "Sample {} of the batch has the label {}, which is not one of the {} classes; raise "
          "‹classes› or correct the data.",
          i, labels[i], range.classes);
    }
  }
}

uint64_t key_of(const graph::ClassRange& range, uint64_t seed, int64_t step) {
  const uint64_t part =
      hash_combine(static_cast<uint64_t>(range.begin), static_cast<uint64_t>(range.local));
  const uint64_t stream = hash_combine(seed, kSampleStream);
  return hash_combine(hash_combine(stream, static_cast<uint64_t>(step)), part);
}

uint64_t key_in(const int32_t* tensor) {
  return static_cast<uint64_t>(static_cast<uint32_t>(tensor[kKey])) << 32 |
         static_cast<uint32_t>(tensor[kKey + 1]);
}

}  // namespace

void draw_sample(const graph::ClassRange& range, double sample_rate,
                 std::span<const int32_t> labels, std::span<const int32_t> all, uint64_t seed,
                 int64_t step, int32_t* tensor) {
  check_labels(range, all);
  const bool everything = sample_rate >= 1;
  int32_t* targets = tensor + kTargets;
  int32_t* positives = targets + labels.size();
  int32_t* end = positives;
  const auto local_of = [&](int32_t label) {
    const int64_t local = label - range.begin;
    return local >= 0 && local < range.local ? static_cast<int32_t>(local) : -1;
  };
  for (const int32_t label : all) {
    if (local_of(label) >= 0) *end++ = local_of(label);
  }
  std::sort(positives, end);
  end = std::unique(positives, end);
  for (const int32_t label : labels) {
    const int32_t local = local_of(label);
    const auto place = static_cast<int32_t>(std::lower_bound(positives, end, local) - positives);
    *targets++ = everything || local < 0 ? local : place;
  }
  const int64_t wanted =
      everything ? range.local : graph::sampled_classes(sample_rate, range.local);
  const uint64_t key = key_of(range, seed, step);
  tensor[kCount] = static_cast<int32_t>(std::max<int64_t>(wanted, end - positives));
  tensor[kPositives] = static_cast<int32_t>(end - positives);
  tensor[kKey] = static_cast<int32_t>(key >> 32);
  tensor[kKey + 1] = static_cast<int32_t>(key);
}

ClassSample::ClassSample(const int32_t* tensor, const graph::ClassRange& range, int64_t batch,
                         double sample_rate)
    : count_(tensor[kCount]),
      everything_(sample_rate >= 1),
      targets_(tensor + kTargets),
      positives_(targets_ + batch, static_cast<size_t>(tensor[kPositives])),
      order_(static_cast<uint64_t>(range.local - tensor[kPositives]), key_in(tensor)) {}

// The class with `number` classes before it that are no positives: as many positives come before
// it as have at most `number` others before them.
int32_t ClassSample::other(int64_t number) const {
  size_t before = 0;
  for (size_t left = positives_.size(); left > 0;) {
    const size_t half = (left + 1) / 2;
    const auto last = static_cast<int64_t>(before + half - 1);
    const bool counts = positives_[before + half - 1] - last <= number;
    before += counts ? half : 0;
    left = counts ? left - half : half - 1;
  }
  return static_cast<int32_t>(number + static_cast<int64_t>(before));
}

void ClassSample::list(int64_t first, std::span<int32_t> classes) const {
  if (everything_) {
    std::iota(classes.begin(), classes.end(), static_cast<int32_t>(first));
    return;
  }
  const auto taken = static_cast<int64_t>(positives_.size());
  const auto own = static_cast<size_t>(
      std::clamp<int64_t>(taken - first, 0, static_cast<int64_t>(classes.size())));
  for (size_t i = 0; i < own; ++i) classes[i] = positives_[static_cast<size_t>(first) + i];
  constexpr size_t kAtOnce = 128;
  std::array<uint64_t, kAtOnce> numbers;
  for (size_t begin = own; begin < classes.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, classes.size() - begin);
    order_.list(static_cast<uint64_t>(first + static_cast<int64_t>(begin) - taken),
                std::span(numbers).first(count));
    for (size_t i = 0; i < count; ++i) {
      classes[begin + i] = other(static_cast<int64_t>(numbers[i]));
    }
  }
}

}  // namespace millrace::kernels
