// The samples of an evaluation that a network was the furthest off with, to be looked at.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/image/image.h"
#include "train/metric.h"

namespace millrace::train {

struct TrainJob;

// Plain data.
struct WorstSample {
  int64_t index = 0;  // of the data
  ScoredSample score;
  double share = 0;                  // of the class that it was taken for
  std::string name = {}, told = {};  // of its class and of that one, or their numbers
  std::string place = {};            // the file, where the data has files
  data::Image image = {};  // as the network saw it, at most kLargestSide pixels wide and high

  bool right() const { return score.told == score.label; }
  double own_share() const;
};

// The image as a PNG file.
std::vector<std::byte> png_of(const WorstSample& sample);

// [{"index", "file", "name", "taken_for", "share", "own_share", "picture"}…] of those that were
// taken for another class; the picture is a data URI.
Json wrong_to_json(const std::vector<WorstSample>& samples);

// Keeps those with the largest loss, of equal ones the first. What it keeps does not depend on how
// samples were cut into batches. Used by one thread.
class WorstSamples {
 public:
  static constexpr int kLargestSide = 80;

  // As many as job.worst_samples, with the names of its classes.
  explicit WorstSamples(const TrainJob& job);

  // `image` has the values that the network was given, channel after channel.
  void look(int64_t index, const ScoredSample& score, double share, std::span<const float> image);

  // The worst first. `place` tells where a sample of the data lies.
  template <typename Place>
  std::vector<WorstSample> take(const Place& place) {
    sort();
    for (WorstSample& sample : kept_) sample.place = place(sample.index);
    return std::move(kept_);
  }

 private:
  bool is_worse(const WorstSample& a, const WorstSample& b) const;
  void sort();

  size_t most_;
  int channels_, height_, width_;
  std::array<float, 3> mean_, deviation_;
  std::vector<std::string> names_;
  std::vector<WorstSample> kept_;  // a heap: the least bad on top
};

}  // namespace millrace::train
