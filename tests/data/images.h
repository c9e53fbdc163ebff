// Images for tests.
#pragma once

#include <cmath>
#include <cstddef>

#include "data/image/image.h"
#include "data/sample.h"

namespace millrace::data {

// A smooth picture: JPEG keeps it nearly exactly.
inline Image smooth_image(int height, int width, int channels, double phase = 0) {
  Image image{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const double value = 128 + 100 * std::sin(phase + 0.013 * x + c) * std::cos(0.017 * y - c);
        image.pixels.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return image;
}

inline Sample sample_of(std::vector<std::byte> encoded, int64_t label) {
  Sample sample;
  sample.storage = std::move(encoded);
  sample.bytes = sample.storage;
  sample.label = label;
  return sample;
}

inline Sample sample_of(const Image& image, int64_t label) {
  Sample sample;
  const auto* bytes = reinterpret_cast<const std::byte*>(image.pixels.data());
  sample.storage.assign(bytes, bytes + image.pixels.size());
  sample.bytes = sample.storage;
  sample.height = image.height;
  sample.width = image.width;
  sample.channels = image.channels;
  sample.label = label;
  return sample;
}

}  // namespace millrace::data
