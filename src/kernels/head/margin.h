// The margin of a target's logit: scale * (cos(multiplier * angle + addend) - subtrahend).
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/attributes.h"
#include "kernels/head/target.h"

namespace millrace {

// ArcFace adds to the angle, CosFace subtracts from the cosine, SphereFace multiplies the angle.
// With `exact` the slope is the formula's own; else that of the plain cosine.
struct Margin {
  double multiplier = 1;
  double addend = 0;
  double subtrahend = 0;
  double scale = 64;
  bool exact = true;

  double logit(const Target& target) const {
    if (keeps_angle()) return scale * (std::clamp(target.cosine, -1.0, 1.0) - subtrahend);
    return scale * (std::cos(multiplier * target.angle + addend) - subtrahend);
  }

  // The change of the logit with the cosine. It has a pole at the angles 0 and pi, where the
  // tangent that it multiplies vanishes as the sine does; closer to them than kLeastSine, where the
  // tangent is rounding alone, the product fades out.
  double slope(const Target& target) const {
    if (keeps_angle() || !exact) return scale;
    return scale * multiplier * std::sin(multiplier * target.angle + addend) /
           std::max(target.sine, kLeastSine);
  }

 private:
  static constexpr double kLeastSine = 1e-6;

  bool keeps_angle() const { return multiplier == 1 && addend == 0; }
};

inline Margin margin_of(const Attributes& attributes) {
  return {attributes.number("margin_multiplier"), attributes.number("margin_addend"),
          attributes.number("margin_subtrahend"), attributes.number("scale"),
          attributes.flag("exact_gradient")};
}

}  // namespace millrace
