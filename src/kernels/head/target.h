// A sample and the centre of its own class.
//
// There are as many of these as samples, so they are computed apart from the blocks and in double:
// the margin magnifies errors of a small angle, and the gradients of both lie across them, where
// what is left is a difference of nearly equal vectors.
#pragma once

#include <cstdint>

namespace millrace::kernels {

struct Target {
  double norm = 1;    // of the centre, at least kLeastNorm
  double length = 1;  // of the embedding, which is one but for rounding
  double cosine = 0;
  double sine = 0;
  double angle = 0;
  bool has_direction = true;  // the centre is longer than kLeastNorm
};

Target measure_target(const float* embedding, const float* centre, int64_t dimension);

// Adds what a gradient of the cosine makes of the gradients of the unit embedding and of the
// centre: each lies along the tangent at its own end. Either may be null.
void add_tangents(const Target& target, double of_cosine, const float* embedding,
                  const float* centre, int64_t dimension, float* of_embedding, float* of_centre);

}  // namespace millrace::kernels
