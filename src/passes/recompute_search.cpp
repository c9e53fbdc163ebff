#include "passes/recompute_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace millrace::passes {
namespace {

constexpr int kBounds = 24;

// Keeps whatever can be kept at no greater peak or within the budget, in this order.
void give_back(const RecomputePlanner& planner, const std::vector<RecomputeCandidate>& sequence,
               int64_t budget_bytes, RecomputeChoice& choice) {
  int64_t peak = planner.peak(choice);
  for (const RecomputeCandidate& candidate : sequence) {
    if (!choice[static_cast<size_t>(candidate.tensors[0])]) continue;
    RecomputePlanner::choose(choice, candidate, false);
    const int64_t without = planner.peak(choice);
    if (without <= std::max(peak, budget_bytes) && planner.stale(choice).empty()) {
      peak = std::min(peak, without);
    } else {
      RecomputePlanner::choose(choice, candidate, true);
    }
  }
}

// The candidates in the order of the forward pass, cut into segments. Positions are the numbers of
// candidates before a cut.
class Segments {
 public:
  explicit Segments(const RecomputePlanner& planner)
      : planner_(planner), count_(planner.candidates().size()) {
    find_last_readers();
    keep_.assign((count_ + 1) * (count_ + 1), 0);
    work_.assign((count_ + 1) * (count_ + 1), 0);
    for (size_t end = 1; end <= count_; ++end) measure(end);
  }

  // The bounds that are worth trying: from the least that any division needs to no division.
  std::vector<int64_t> bounds() const {
    int64_t least = 1;
    for (size_t end = 1; end <= count_; ++end) least = std::max(least, work_[at(end - 1, end)]);
    const double most = static_cast<double>(std::max(least, work_[at(0, count_)]));
    std::vector<int64_t> all;
    for (int i = 0; i < kBounds; ++i) {
      const double share = static_cast<double>(i) / (kBounds - 1);
      const double first = static_cast<double>(least);
      all.push_back(static_cast<int64_t>(first * std::pow(most / first, share)));
    }
    return all;
  }

  // Keeps the least among the divisions whose segments take no more than that; if it is to be
  // shared, together with what those before them keep.
  RecomputeChoice divide(int64_t bound, bool shared) const {
    std::vector<int64_t> kept(count_ + 1, std::numeric_limits<int64_t>::max());
    std::vector<size_t> from(count_ + 1, 0);
    kept[0] = 0;
    for (size_t end = 1; end <= count_; ++end) {
      for (size_t begin = end; begin-- > 0;) {
        if (begin + 1 < end && work_[at(begin, end)] > bound) break;
        const bool fits = work_[at(begin, end)] + kept[begin] <= bound;
        if (shared && begin + 1 < end && !fits) continue;
        const int64_t sum = kept[begin] + keep_[at(begin, end)];
        if (sum < kept[end]) {
          kept[end] = sum;
          from[end] = begin;
        }
      }
    }
    RecomputeChoice choice = planner_.all();
    for (size_t end = count_; end > 0; end = from[end]) {
      for (size_t i = from[end]; i < end; ++i) {
        if (last_reader_[i] >= end) planner_.choose(choice, planner_.candidates()[i], false);
      }
    }
    return choice;
  }

 private:
  size_t at(size_t begin, size_t end) const { return begin * (count_ + 1) + end; }

  void find_last_readers() {
    last_reader_.assign(count_, 0);
    read_backward_.assign(count_, false);
    for (size_t i = 0; i < count_; ++i) {
      const RecomputeCandidate& candidate = planner_.candidates()[i];
      for (graph::TensorId input : planner_.clone_inputs(candidate.producer)) {
        const int source = planner_.candidate_of(input);
        if (source >= 0) last_reader_[static_cast<size_t>(source)] = i;
      }
      for (graph::TensorId tensor : candidate.tensors) {
        if (planner_.facts().read_backward[static_cast<size_t>(tensor)]) read_backward_[i] = true;
      }
    }
  }

  // What a segment keeps for those behind it, and what it takes while it runs backward.
  void measure(size_t end) {
    int64_t keep = 0;
    int64_t again = 0;
    int64_t largest = 0;
    for (size_t i = end; i-- > 0;) {
      int64_t bytes = 0;
      for (graph::TensorId tensor : planner_.candidates()[i].tensors) {
        if (planner_.facts().roots[static_cast<size_t>(tensor)] != tensor) continue;
        bytes += planner_.facts().bytes[static_cast<size_t>(tensor)];
      }
      largest = std::max(largest, bytes);
      if (last_reader_[i] >= end) {
        keep += planner_.candidates()[i].bytes;
      } else if (read_backward_[i]) {
        again += bytes;
      }
      keep_[at(i, end)] = keep;
      work_[at(i, end)] = again + largest;
    }
  }

  const RecomputePlanner& planner_;
  const size_t count_;
  std::vector<size_t> last_reader_;  // by candidate: the last that reads it; 0 if none
  std::vector<bool> read_backward_;  // by candidate
  std::vector<int64_t> keep_;        // by segment
  std::vector<int64_t> work_;        // by segment
};

struct Option {
  RecomputeChoice choice;
  int64_t peak = 0;
};

RecomputeChoice cheap_ones(const RecomputePlanner& planner) {
  RecomputeChoice choice = planner.none();
  for (const RecomputeCandidate& candidate : planner.candidates()) {
    if (candidate.cheap) RecomputePlanner::choose(choice, candidate, true);
  }
  return choice;
}

}  // namespace

RecomputeChoice choose_cheap(const RecomputePlanner& planner, int64_t budget_bytes) {
  RecomputeChoice choice = planner.all();
  if (planner.peak(choice) >= planner.peak(planner.none())) return planner.none();
  std::vector<RecomputeCandidate> dearest_first = planner.candidates();
  std::stable_sort(dearest_first.begin(), dearest_first.end(),
                   [](const auto& a, const auto& b) { return a.bytes_moved > b.bytes_moved; });
  give_back(planner, dearest_first, budget_bytes, choice);
  return choice;
}

RecomputeChoice choose_segments(const RecomputePlanner& planner, int64_t budget_bytes) {
  std::vector<Option> options;
  const auto consider = [&](RecomputeChoice choice) {
    if (!planner.stale(choice).empty()) return;
    const int64_t peak = planner.peak(choice);
    options.push_back({std::move(choice), peak});
  };
  consider(planner.none());
  consider(cheap_ones(planner));
  const Segments segments(planner);
  for (const int64_t bound : segments.bounds()) {
    consider(segments.divide(bound, false));
    if (!planner.memory().phased) consider(segments.divide(bound, true));
  }

  std::vector<RecomputeCandidate> dearest_first = planner.candidates();
  std::stable_sort(dearest_first.begin(), dearest_first.end(), [](const auto& a, const auto& b) {
    return a.cost * static_cast<double>(b.bytes) > b.cost * static_cast<double>(a.bytes);
  });
  // From the least peak, and from the least that fits as it is, what costs less in the end.
  const auto by_peak = [](const Option& a, const Option& b) { return a.peak < b.peak; };
  const Option& least = *std::min_element(options.begin(), options.end(), by_peak);
  RecomputeChoice best = least.choice;
  give_back(planner, dearest_first, budget_bytes, best);
  const Option* cheapest = nullptr;
  for (const Option& option : options) {
    if (option.peak > budget_bytes || &option == &least) continue;
    if (cheapest == nullptr || planner.cost(option.choice) < planner.cost(cheapest->choice)) {
      cheapest = &option;
    }
  }
  if (cheapest == nullptr) return best;
  RecomputeChoice other = cheapest->choice;
  give_back(planner, dearest_first, budget_bytes, other);
  return planner.cost(other) < planner.cost(best) ? other : best;
}

}  // namespace millrace::passes
