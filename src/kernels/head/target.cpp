#include "kernels/head/target.h"

#include <algorithm>
#include <cmath>

#include "kernels/head/centre_block.h"
#include "kernels/support/vectorize.h"

namespace millrace::kernels {
namespace {

MILLRACE_VECTORIZED double double_dot(const float* a, const float* b, int64_t count) {
  DoubleLanes sums = {};
  int64_t i = 0;
  for (; i + kDoubleLanes <= count; i += kDoubleLanes) {
    DoubleLanes first;
    DoubleLanes second;
    load_lanes(a + i, first);
    load_lanes(b + i, second);
    sums += first * second;
  }
  double sum = sum_of_lanes(sums);
  for (; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// The squared length of a * x - b * y.
MILLRACE_VECTORIZED double squared_distance(const float* x, double a, const float* y, double b,
                                            int64_t count) {
  DoubleLanes sums = {};
  int64_t i = 0;
  for (; i + kDoubleLanes <= count; i += kDoubleLanes) {
    DoubleLanes first;
    DoubleLanes second;
    load_lanes(x + i, first);
    load_lanes(y + i, second);
    const DoubleLanes apart = first * a - second * b;
    sums += apart * apart;
  }
  double sum = sum_of_lanes(sums);
  for (; i < count; ++i) {
    const double apart = static_cast<double>(x[i]) * a - static_cast<double>(y[i]) * b;
    sum += apart * apart;
  }
  return sum;
}

// sum += a * x - b * y
MILLRACE_VECTORIZED void add_difference(const float* __restrict x, double a,
                                        const float* __restrict y, double b, int64_t count,
                                        float* __restrict sum) {
  for (int64_t i = 0; i < count; ++i) {
    const double apart = static_cast<double>(x[i]) * a - static_cast<double>(y[i]) * b;
    sum[i] = static_cast<float>(static_cast<double>(sum[i]) + apart);
  }
}

}  // namespace

Target measure_target(const float* embedding, const float* centre, int64_t dimension) {
  // An embedding too short to be normalised is shorter than one by more than rounding.
  constexpr double kRounding = 1e-4;
  Target target;
  const double norm = std::sqrt(double_dot(centre, centre, dimension));
  target.has_direction = norm > static_cast<double>(kLeastNorm);
  target.norm = std::max(norm, static_cast<double>(kLeastNorm));
  const double length = std::sqrt(double_dot(embedding, embedding, dimension));
  target.length = std::abs(length - 1) < kRounding ? length : 1;
  target.cosine = double_dot(embedding, centre, dimension) / (target.norm * target.length);
  target.sine = std::sqrt(squared_distance(embedding, 1 / target.length, centre,
                                           target.cosine / target.norm, dimension));
  target.angle = std::atan2(target.sine, target.cosine);
  return target;
}

void add_tangents(const Target& target, double of_cosine, const float* embedding,
                  const float* centre, int64_t dimension, float* of_embedding, float* of_centre) {
  const double to_embedding = of_cosine / target.length;
  const double to_centre = of_cosine / target.norm;
  if (of_embedding != nullptr) {
    add_difference(centre, to_embedding / target.norm, embedding,
                   to_embedding * target.cosine / target.length, dimension, of_embedding);
  }
  if (of_centre == nullptr) return;
  const double along = target.has_direction ? target.cosine : 0;
  add_difference(embedding, to_centre / target.length, centre, to_centre * along / target.norm,
                 dimension, of_centre);
}

}  // namespace millrace::kernels
