#include "train/faces/verification.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "base/error.h"
#include "base/parallel.h"

namespace millrace::train {
namespace {

constexpr int kThresholds = 400;
constexpr double kThresholdStep = 0.01;
constexpr double kRates[] = {1e-2, 1e-3, 1e-4, 1e-5};
constexpr double kSearchRates[] = {1e-1, 1e-2, 1e-3};

void require_finite(std::span<const float> embeddings) {
  for (const float value : embeddings) {
    if (!std::isfinite(value)) {
      fail_input("The network gives embeddings that are not finite; its weights are damaged.");
    }
  }
}

double squared_distance(const float* a, const float* b, size_t features) {
  double sum = 0;
  for (size_t i = 0; i < features; ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

// How many pairs of a fold each threshold judges rightly.
using Counts = std::vector<int64_t>;

Counts count_right(std::span<const double> distances, const std::vector<bool>& same, size_t begin,
                   size_t end) {
  Counts right(kThresholds, 0);
  for (size_t i = begin; i < end; ++i) {
    for (int t = 0; t < kThresholds; ++t) {
      const bool taken_for_same = distances[i] < t * kThresholdStep;
      right[static_cast<size_t>(t)] += taken_for_same == same[i] ? 1 : 0;
    }
  }
  return right;
}

int best_threshold(const Counts& right) {
  return static_cast<int>(std::max_element(right.begin(), right.end()) - right.begin());
}

void measure_folds(std::span<const double> distances, const std::vector<bool>& same,
                   VerificationReport& report) {
  const size_t count = same.size();
  std::vector<Counts> folds;
  std::vector<size_t> sizes;
  Counts all(kThresholds, 0);
  size_t begin = 0;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    sizes.push_back(count / kFolds + (fold < count % kFolds ? 1 : 0));
    folds.push_back(count_right(distances, same, begin, begin + sizes.back()));
    begin += sizes.back();
    for (size_t t = 0; t < all.size(); ++t) all[t] += folds.back()[t];
  }
  std::vector<double> accuracies;
  for (size_t fold = 0; fold < kFolds; ++fold) {
    Counts others = all;
    for (size_t t = 0; t < others.size(); ++t) others[t] -= folds[fold][t];
    const auto chosen = static_cast<size_t>(best_threshold(others));
    accuracies.push_back(static_cast<double>(folds[fold][chosen]) /
                         static_cast<double>(sizes[fold]));
  }
  for (const double accuracy : accuracies) report.accuracy += accuracy;
  report.accuracy /= kFolds;
  double squares = 0;
  for (const double accuracy : accuracies) squares += std::pow(accuracy - report.accuracy, 2);
  report.deviation = std::sqrt(squares / kFolds);
  report.threshold = best_threshold(all) * kThresholdStep;
}

AcceptRate accept_rate(double far, const std::vector<double>& genuine,
                       const std::vector<double>& impostors) {
  const double allowed = std::floor(far * static_cast<double>(impostors.size()) + 1e-9);
  const auto next = std::min(impostors.size() - 1, static_cast<size_t>(allowed));
  AcceptRate rate = {.far = far, .threshold = impostors[next], .resolved = allowed >= 1};
  int64_t accepted = 0;
  for (const double similarity : genuine) accepted += similarity > rate.threshold ? 1 : 0;
  rate.tar = static_cast<double>(accepted) / static_cast<double>(genuine.size());
  return rate;
}

// The area under the curve of true over false accepts; `impostors` are sorted, best first. Equal
// similarities count half.
double area_under_curve(const std::vector<double>& genuine, const std::vector<double>& impostors) {
  double wins = 0;
  for (const double similarity : genuine) {
    const auto [first, last] =
        std::equal_range(impostors.begin(), impostors.end(), similarity, std::greater<>());
    wins += static_cast<double>(impostors.end() - last) + static_cast<double>(last - first) / 2;
  }
  return wins / static_cast<double>(genuine.size()) / static_cast<double>(impostors.size());
}

// What a probe finds in the gallery.
struct Search {
  bool found = false;  // its own identity first
  double own = -2;     // similarity
  double other = -2;   // of the best of all others
};

}  // namespace

VerificationReport verify_pairs(std::span<const float> embeddings, const std::vector<bool>& same) {
  require_finite(embeddings);
  const size_t count = same.size();
  if (count < kFolds) {
    fail_input("The verification set has {} pairs; it needs at least {}.", count, kFolds);
  }
  const size_t features = embeddings.size() / (2 * count);
  std::vector<double> distances(count);
  std::vector<double> genuine, impostors;
  for (size_t i = 0; i < count; ++i) {
    const float* first = embeddings.data() + 2 * i * features;
    distances[i] = squared_distance(first, first + features, features);
    (same[i] ? genuine : impostors).push_back(1 - distances[i] / 2);
  }
  if (genuine.empty() || impostors.empty()) {
    fail_input("The verification set has only pairs of {}; it needs both kinds.",
               genuine.empty() ? "different people" : "the same person");
  }
  std::sort(impostors.rbegin(), impostors.rend());
  VerificationReport report;
  report.pairs = static_cast<int64_t>(count);
  report.different = static_cast<int64_t>(impostors.size());
  measure_folds(distances, same, report);
  report.auc = area_under_curve(genuine, impostors);
  for (const double far : kRates) report.rates.push_back(accept_rate(far, genuine, impostors));
  return report;
}

IdentificationReport identify(std::span<const float> embeddings, std::span<const int32_t> labels,
                              int64_t features) {
  require_finite(embeddings);
  std::vector<size_t> gallery, probes;
  std::unordered_map<int32_t, size_t> known;
  for (size_t i = 0; i < labels.size(); ++i) {
    (known.emplace(labels[i], i).second ? gallery : probes).push_back(i);
  }
  if (probes.empty()) {
    fail_input(
        "Identification needs a second image of some identity to look up; the set has none.");
  }
  const auto row = [&](size_t i) { return embeddings.data() + static_cast<int64_t>(i) * features; };
  std::vector<Search> searches(probes.size());
  parallel_for(static_cast<int64_t>(probes.size()), 1, [&](int64_t p) {
    const size_t probe = probes[static_cast<size_t>(p)];
    Search& search = searches[static_cast<size_t>(p)];
    size_t own = 0, other = 0;  // places in the gallery
    for (size_t i = 0; i < gallery.size(); ++i) {
      const double similarity =
          1 - squared_distance(row(probe), row(gallery[i]), static_cast<size_t>(features)) / 2;
      const bool is_own = labels[gallery[i]] == labels[probe];
      double& best = is_own ? search.own : search.other;
      if (similarity <= best) continue;
      best = similarity;
      (is_own ? own : other) = i;
    }
    search.found = search.own > search.other || (search.own == search.other && own < other);
  });
  IdentificationReport report;
  report.gallery = static_cast<int64_t>(gallery.size());
  report.probes = static_cast<int64_t>(probes.size());
  std::vector<double> mates, strangers;
  for (const Search& search : searches) {
    report.rank1 += search.found ? 1 : 0;
    mates.push_back(search.found ? search.own : -2);
    strangers.push_back(search.other);
  }
  report.rank1 /= static_cast<double>(probes.size());
  if (gallery.size() < 2) return report;
  std::sort(strangers.rbegin(), strangers.rend());
  for (const double rate : kSearchRates) {
    report.rates.push_back(accept_rate(rate, mates, strangers));
  }
  return report;
}

}  // namespace millrace::train
