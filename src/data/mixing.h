// Pairs of images that are trained on as one: mixup (Zhang et al., 2017) and CutMix (Yun et al.,
// 2019).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace millrace::data {

// As torchvision does it: one share for a batch, drawn from Beta(alpha, alpha), and each row mixed
// with the row before it, the first with the last. With both, each batch is mixed in one of the two
// ways, drawn anew.
struct MixSettings {
  double mixup = 0;   // alpha; 0: not
  double cutmix = 0;  // alpha; 0: not

  bool enabled() const { return mixup > 0 || cutmix > 0; }
};

// How one batch is mixed: rows keep `share` of themselves, or with `cut` all but a rectangle of
// that part of the area.
struct Mix {
  double share = 1;
  bool cut = false;
  int left = 0, top = 0, right = 0, bottom = 0;
};

// A function of its arguments alone.
Mix draw_mix(const MixSettings& settings, const Random& random, int height, int width);

// A number from Beta(alpha, alpha), from draws first_draw … of `random`.
double draw_beta(double alpha, const Random& random, uint64_t first_draw);

// Shares travel beside labels as whole numbers: this many are 1.
inline constexpr int32_t kWholeShare = 1 << 24;

// own ← own and other, images of channels × height × width.
void mix_images(const Mix& mix, int channels, int height, int width, float* own,
                const float* other);

}  // namespace millrace::data
