#include "train/worst_samples.h"

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "base/text.h"
#include "data/image/png.h"
#include "train/feed/feeds.h"
#include "train/job.h"

namespace millrace::train {
namespace {

std::string name_at(const std::vector<std::string>& names, int64_t label) {
  const auto place = static_cast<size_t>(label);
  return place < names.size() ? names[place] : std::to_string(label);
}

}  // namespace

double WorstSample::own_share() const { return std::exp(-score.loss); }

std::vector<std::byte> png_of(const WorstSample& sample) {
  return data::encode_png(sample.image.view());
}

Json wrong_to_json(const std::vector<WorstSample>& samples) {
  Json json = Json::array();
  for (const WorstSample& sample : samples) {
    if (sample.right()) continue;
    Json entry = {{"index", sample.index},
                  {"name", sample.name},
                  {"taken_for", sample.told},
                  {"share", sample.share},
                  {"own_share", sample.own_share()},
                  {"picture", "data:image/png;base64," + base64(png_of(sample))}};
    if (!sample.place.empty()) entry["file"] = printable(sample.place);
    json.push_back(std::move(entry));
  }
  return json;
}

WorstSamples::WorstSamples(const TrainJob& job)
    : most_(static_cast<size_t>(job.worst_samples)), names_(job.class_names) {
  const data::TransformOptions transform = evaluation_transform(job);
  channels_ = transform.channels;
  height_ = transform.height;
  width_ = transform.width;
  mean_ = transform.mean;
  deviation_ = transform.deviation;
}

bool WorstSamples::is_worse(const WorstSample& a, const WorstSample& b) const {
  return a.score.loss != b.score.loss ? a.score.loss > b.score.loss : a.index < b.index;
}

void WorstSamples::look(int64_t index, const ScoredSample& score, double share,
                        std::span<const float> image) {
  if (!std::isfinite(score.loss)) return;
  const auto worse = [this](const WorstSample& a, const WorstSample& b) { return is_worse(a, b); };
  WorstSample sample = {.index = index, .score = score, .share = share};
  if (kept_.size() == most_) {
    if (most_ == 0 || !is_worse(sample, kept_.front())) return;
    std::pop_heap(kept_.begin(), kept_.end(), worse);
    kept_.pop_back();
  }
  sample.name = name_at(names_, score.label);
  sample.told = name_at(names_, score.told);
  const int side = (std::max(height_, width_) + kLargestSide - 1) / kLargestSide;
  data::Image& small = sample.image;
  small = {std::max(1, height_ / side), std::max(1, width_ / side), channels_, {}};
  small.pixels.reserve(static_cast<size_t>(small.height * small.width * channels_));
  for (int y = 0; y < small.height; ++y) {
    for (int x = 0; x < small.width; ++x) {
      for (int c = 0; c < channels_; ++c) {
        double sum = 0;
        for (int row = y * side; row < (y + 1) * side; ++row) {
          const float* values = image.data() + (int64_t{c} * height_ + row) * width_ + x * side;
          for (int i = 0; i < side; ++i) sum += values[i];
        }
        const auto channel = static_cast<size_t>(c);
        const double value = sum / (side * side) * deviation_[channel] + mean_[channel];
        small.pixels.push_back(static_cast<uint8_t>(std::clamp(value * 255 + 0.5, 0.0, 255.0)));
      }
    }
  }
  kept_.push_back(std::move(sample));
  std::push_heap(kept_.begin(), kept_.end(), worse);
}

void WorstSamples::sort() {
  std::sort(kept_.begin(), kept_.end(),
            [this](const WorstSample& a, const WorstSample& b) { return is_worse(a, b); });
}

}  // namespace millrace::train
