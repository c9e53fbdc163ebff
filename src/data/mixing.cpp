#include "data/mixing.h"

#include <algorithm>
#include <cmath>

namespace millrace::data {
namespace {

constexpr uint64_t kChoiceDraw = 0;
constexpr uint64_t kCentreDraw = 1;
constexpr uint64_t kBetaDraw = 8;
constexpr uint64_t kDrawsOfGamma = uint64_t{1} << 20;

// Marsaglia and Tsang (2000); below 1 by a number of shape + 1 and a power of a uniform one.
double draw_gamma(double shape, const Random& random, uint64_t first_draw) {
  const double uniform = random.uniform(first_draw) + 0x1.0p-25;
  const double power = shape < 1 ? std::pow(uniform, 1 / shape) : 1;
  const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (uint64_t draw = first_draw + 2;; draw += 2) {
    const double normal = random.normal(draw);
    const double root = 1 + c * normal;
    if (root <= 0) continue;
    const double cube = root * root * root;
    const double chance = random.uniform(draw + kDrawsOfGamma / 2) + 0x1.0p-25;
    if (std::log(chance) < 0.5 * normal * normal + d - d * cube + d * std::log(cube)) {
      return d * cube * power;
    }
  }
}

}  // namespace

double draw_beta(double alpha, const Random& random, uint64_t first_draw) {
  const double first = draw_gamma(alpha, random, first_draw);
  const double second = draw_gamma(alpha, random, first_draw + kDrawsOfGamma);
  return first + second > 0 ? first / (first + second) : 0.5;
}

Mix draw_mix(const MixSettings& settings, const Random& random, int height, int width) {
  const bool both = settings.mixup > 0 && settings.cutmix > 0;
  const bool cut = both ? random.uniform(kChoiceDraw) < 0.5f : settings.cutmix > 0;
  const double share = draw_beta(cut ? settings.cutmix : settings.mixup, random, kBetaDraw);
  if (!cut) return {.share = share};
  const auto centre = [&](uint64_t draw, int extent) {
    return std::min(extent - 1,
                    static_cast<int>(random.uniform(draw) * static_cast<float>(extent)));
  };
  const double side = 0.5 * std::sqrt(1 - share);
  const auto half_width = static_cast<int>(side * width);
  const auto half_height = static_cast<int>(side * height);
  const int x = centre(kCentreDraw, width);
  const int y = centre(kCentreDraw + 1, height);
  Mix mix = {.cut = true};
  mix.left = std::max(0, x - half_width);
  mix.top = std::max(0, y - half_height);
  mix.right = std::min(width, x + half_width);
  mix.bottom = std::min(height, y + half_height);
  const double area = static_cast<double>(mix.right - mix.left) * (mix.bottom - mix.top);
  mix.share = 1 - area / (static_cast<double>(width) * height);
  return mix;
}

void mix_images(const Mix& mix, int channels, int height, int width, float* own,
                const float* other) {
  const int64_t plane = int64_t{height} * width;
  if (!mix.cut) {
    const auto share = static_cast<float>(mix.share);
    const auto rest = static_cast<float>(1 - mix.share);
    for (int64_t i = 0; i < channels * plane; ++i) own[i] = share * own[i] + rest * other[i];
    return;
  }
  for (int c = 0; c < channels; ++c) {
    for (int y = mix.top; y < mix.bottom; ++y) {
      const int64_t at = c * plane + int64_t{y} * width;
      std::copy(other + at + mix.left, other + at + mix.right, own + at + mix.left);
    }
  }
}

}  // namespace millrace::data
