// The margin of a target's logit: scale * (cos(multiplier * angle + addend) - subtrahend).
#pragma once

#include <algorithm>
#include <cmath>

#include "graph/margin_head.h"
#include "kernels/head/target.h"

namespace millrace::kernels {

// ArcFace adds to the angle, CosFace subtracts from the cosine, SphereFace multiplies the angle.
// With `exact` the slope is the formula's own; else that of the plain cosine.
struct Margin {
  double multiplier = 1;
  double addend = 0;
  double subtrahend = 0;
  double scale = 64;
  bool exact = true;
  graph::HeadMargin kind = graph::HeadMargin::fixed;

  // That of one sample.
  Margin of(const graph::SampleMargin& own) const {
    Margin margin = *this;
    if (kind != graph::HeadMargin::quality && kind != graph::HeadMargin::magnitude) return margin;
    margin.addend = static_cast<double>(own.addend);
    margin.subtrahend = static_cast<double>(own.subtrahend);
    return margin;
  }

  // The change of the logit with the addend.
  double slope_of_addend(const Target& target) const {
    return -scale * std::sin(multiplier * target.angle + addend);
  }

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

inline Margin margin_of(const graph::Attributes& attributes) {
  return {attributes.number("margin_multiplier"), attributes.number("margin_addend"),
          attributes.number("margin_subtrahend"), attributes.number("scale"),
          attributes.flag("exact_gradient"),      graph::head_margin_of(attributes)};
}

}  // namespace millrace::kernels
