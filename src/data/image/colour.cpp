#include "data/image/colour.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/vectorize.h"

namespace millrace::data {
namespace {

constexpr float kRed = 0.299f;
constexpr float kGreen = 0.587f;
constexpr float kBlue = 0.114f;

float gray_of(const float* pixel, int lanes) {
  return lanes == 1 ? pixel[0] : kRed * pixel[0] + kGreen * pixel[1] + kBlue * pixel[2];
}

// value ← factor · value + offset, clamped.
MILLRACE_VECTORIZED
void scale_and_clamp(float* pixels, size_t count, float factor, float offset) {
  for (size_t i = 0; i < count; ++i) {
    const float value = pixels[i] * factor + offset;
    const float low = value < 0.0f ? 0.0f : value;
    pixels[i] = low > 255.0f ? 255.0f : low;
  }
}

float mean_gray(std::span<const float> pixels, int lanes) {
  const size_t step = static_cast<size_t>(lanes);
  double sum = 0;
  for (size_t i = 0; i < pixels.size(); i += step) sum += gray_of(&pixels[i], lanes);
  return static_cast<float>(sum / static_cast<double>(pixels.size() / step));
}

void saturate(std::span<float> pixels, int lanes, float factor) {
  if (lanes == 1) return;
  for (size_t i = 0; i < pixels.size(); i += static_cast<size_t>(lanes)) {
    const float gray = (1 - factor) * gray_of(&pixels[i], lanes);
    for (size_t c = 0; c < 3; ++c) {
      pixels[i + c] = std::clamp(factor * pixels[i + c] + gray, 0.0f, 255.0f);
    }
  }
}

}  // namespace

void apply_jitter(const ColourJitter& jitter, const Random& random, uint64_t first_draw,
                  std::span<float> pixels, int lanes) {
  const auto factor = [&](float strength, uint64_t draw) {
    return std::max(0.0f, 1 + strength * (2 * random.uniform(first_draw + draw) - 1));
  };
  std::array<int, 3> order = {0, 1, 2};
  std::swap(order[0], order[static_cast<size_t>(random.uniform(first_draw) * 3)]);
  std::swap(order[1], order[1 + static_cast<size_t>(random.uniform(first_draw + 1) * 2)]);
  for (const int change : order) {
    if (change == 0 && jitter.brightness > 0) {
      scale_and_clamp(pixels.data(), pixels.size(), factor(jitter.brightness, 2), 0);
    } else if (change == 1 && jitter.contrast > 0) {
      const float amount = factor(jitter.contrast, 3);
      const float mean = mean_gray(pixels, lanes);
      scale_and_clamp(pixels.data(), pixels.size(), amount, (1 - amount) * mean);
    } else if (change == 2 && jitter.saturation > 0) {
      saturate(pixels, lanes, factor(jitter.saturation, 4));
    }
  }
}

}  // namespace millrace::data
