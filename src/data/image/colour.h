// The grey of a colour, and random changes of colour.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace millrace::data {

// Brightness by the weights of ITU-R 601, rounded as PIL rounds it.
inline uint8_t grey_of(int red, int green, int blue) {
  return static_cast<uint8_t>((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

// Factors are drawn uniformly from [1 − x, 1 + x]; 0 leaves the image as it is.
struct ColourJitter {
  float brightness = 0;
  float contrast = 0;
  float saturation = 0;

  bool enabled() const { return brightness > 0 || contrast > 0 || saturation > 0; }
};

// Applies the three in random order to pixels of `lanes` floats (4: red, green, blue, padding;
// 1: gray) from 0 to 255, clamping after each. Draws elements first_draw … first_draw + 5.
void apply_jitter(const ColourJitter& jitter, const Random& random, uint64_t first_draw,
                  std::span<float> pixels, int lanes);

}  // namespace millrace::data
