#include "kernels/head/sampling.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "base/permutation.h"
#include "base/random.h"

namespace millrace {
namespace {

constexpr uint64_t kSampleStream = 0x73616D706C65;
constexpr int64_t kGrain = 1024;

void check_labels(const ClassRange& range, std::span<const int32_t> labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= range.classes) {
      fail_input(
          "Sample {} of the batch has the label {}, which is not one of the {} classes; raise "
          "--classes or correct the data.",
          i, labels[i], range.classes);
    }
  }
}

// The labels of this part, counted from its first class, each once and in order.
std::span<int32_t> positives_of(const ClassRange& range, std::span<const int32_t> labels,
                                int32_t* scratch) {
  int32_t* end = scratch;
  for (const int32_t label : labels) {
    const int64_t local = label - range.begin;
    if (local >= 0 && local < range.local) *end++ = static_cast<int32_t>(local);
  }
  std::sort(scratch, end);
  end = std::unique(scratch, end);
  return {scratch, end};
}

}  // namespace

Sample sample_in(const int32_t* tensor, int64_t batch, double sample_rate) {
  return {tensor[0], tensor + 1, sample_rate >= 1 ? nullptr : tensor + 1 + batch};
}

void draw_sample(const ClassRange& range, double sample_rate, std::span<const int32_t> labels,
                 uint64_t seed, int64_t step, int32_t* scratch, int32_t* tensor) {
  check_labels(range, labels);
  const auto batch = static_cast<int64_t>(labels.size());
  int32_t* targets = tensor + 1;
  const auto local_of = [&](int64_t row) {
    const int64_t local = labels[static_cast<size_t>(row)] - range.begin;
    return local >= 0 && local < range.local ? static_cast<int32_t>(local) : -1;
  };
  if (sample_rate >= 1) {
    tensor[0] = static_cast<int32_t>(range.local);
    for (int64_t row = 0; row < batch; ++row) targets[row] = local_of(row);
    return;
  }

  const std::span<int32_t> positives = positives_of(range, labels, scratch);
  int32_t* classes = targets + batch;
  for (int64_t row = 0; row < batch; ++row) {
    const int32_t local = local_of(row);
    const auto place = std::lower_bound(positives.begin(), positives.end(), local);
    targets[row] = local < 0 ? -1 : static_cast<int32_t>(place - positives.begin());
  }
  std::copy(positives.begin(), positives.end(), classes);

  // The i-th class that is no positive has gap[j] = positive[j] - j classes before positive j.
  const auto taken = static_cast<int64_t>(positives.size());
  for (int64_t j = 0; j < taken; ++j) positives[static_cast<size_t>(j)] -= static_cast<int32_t>(j);
  const int64_t others = sampled_classes(sample_rate, range.local) - taken;
  tensor[0] = static_cast<int32_t>(taken + std::max<int64_t>(0, others));
  if (others <= 0) return;
  const uint64_t part =
      hash_combine(static_cast<uint64_t>(range.begin), static_cast<uint64_t>(range.local));
  const uint64_t key = hash_combine(
      hash_combine(hash_combine(seed, kSampleStream), static_cast<uint64_t>(step)), part);
  const Permutation order(static_cast<uint64_t>(range.local - taken), key);
  parallel_for(others, kGrain, [&](int64_t i) {
    const auto index = static_cast<int32_t>(order.at(static_cast<uint64_t>(i)));
    const auto before = std::upper_bound(positives.begin(), positives.end(), index);
    classes[taken + i] = index + static_cast<int32_t>(before - positives.begin());
  });
}

}  // namespace millrace
