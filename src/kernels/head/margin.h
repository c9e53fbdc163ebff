// The margin of a target's logit: scale * (cos(multiplier * angle + addend) - subtrahend).
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/attributes.h"

namespace millrace {

// ArcFace adds to the angle, CosFace subtracts from the cosine, SphereFace multiplies the angle.
// With `exact` the slope is the formula's own; else that of the plain cosine.
struct Margin {
  double multiplier = 1;
  double addend = 0;
  double subtrahend = 0;
  double scale = 64;
  bool exact = true;

  double logit(double cosine) const {
    if (keeps_angle()) return scale * (clamped(cosine) - subtrahend);
    return scale * (std::cos(multiplier * std::acos(clamped(cosine)) + addend) - subtrahend);
  }

  // The change of the logit with the cosine. It has a pole at the angles 0 and pi, where the
  // slope of the last angle short of them is taken.
  double slope(double cosine) const {
    if (keeps_angle() || !exact) return scale;
    const double angle =
        std::clamp(std::acos(clamped(cosine)), kLeastAngle, std::numbers::pi - kLeastAngle);
    return scale * multiplier * std::sin(multiplier * angle + addend) / std::sin(angle);
  }

 private:
  // Cosines in float32 tell smaller angles no longer apart.
  static constexpr double kLeastAngle = 3e-4;

  static double clamped(double cosine) { return std::clamp(cosine, -1.0, 1.0); }
  bool keeps_angle() const { return multiplier == 1 && addend == 0; }
};

inline Margin margin_of(const Attributes& attributes) {
  return {attributes.number("margin_multiplier"), attributes.number("margin_addend"),
          attributes.number("margin_subtrahend"), attributes.number("scale"),
          attributes.flag("exact_gradient")};
}

}  // namespace millrace
