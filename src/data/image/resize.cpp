#include "data/image/resize.h"

#include <algorithm>
#include <cmath>

#include "base/vectorize.h"

namespace millrace::data {
namespace {

typedef float Lanes __attribute__((vector_size(16), aligned(4), may_alias));

// For each output element the input elements it takes and their weights, `stride` apart.
int make_taps(double start, double extent, int input, int output, Surroundings surroundings,
              std::vector<int>& first, std::vector<int>& count, std::vector<float>& weights) {
  const double scale = extent / output;
  const double support = std::max(scale, 1.0);
  const int stride = std::max(4, static_cast<int>(std::ceil(support)) * 2 + 1);
  const bool cut = surroundings == Surroundings::cut;
  const int lowest = cut ? std::clamp(static_cast<int>(std::floor(start)), 0, input - 1) : 0;
  const int highest =
      cut ? std::clamp(static_cast<int>(std::ceil(start + extent)), lowest + 1, input) : input;
  first.resize(static_cast<size_t>(output));
  count.resize(static_cast<size_t>(output));
  weights.assign(static_cast<size_t>(output) * static_cast<size_t>(stride), 0.0f);
  for (int i = 0; i < output; ++i) {
    const double centre = start + (i + 0.5) * scale;
    int from =
        std::clamp(static_cast<int>(std::floor(centre - support + 0.5)), lowest, highest - 1);
    int to = std::clamp(static_cast<int>(std::floor(centre + support + 0.5)), from + 1,
                        std::min(highest, from + stride));
    const auto weight_of = [&](int j) {
      return std::max(0.0, 1 - std::abs(j + 0.5 - centre) / support);
    };
    while (to - from > 1 && weight_of(from) == 0) ++from;
    while (to - from > 1 && weight_of(to - 1) == 0) --to;
    double sum = 0;
    for (int j = from; j < to; ++j) sum += weight_of(j);
    float* target = &weights[static_cast<size_t>(i) * static_cast<size_t>(stride)];
    for (int j = from; j < to; ++j) {
      target[j - from] =
          sum > 0 ? static_cast<float>(weight_of(j) / sum) : (j == from ? 1.0f : 0.0f);
    }
    first[static_cast<size_t>(i)] = from;
    count[static_cast<size_t>(i)] = to - from;
  }
  return stride;
}

MILLRACE_VECTORIZED
void set_scaled(float* __restrict line, const uint8_t* __restrict from, float weight, int size) {
  for (int i = 0; i < size; ++i) line[i] = weight * static_cast<float>(from[i]);
}

MILLRACE_VECTORIZED
void set_scaled_pair(float* __restrict line, const uint8_t* __restrict from,
                     const uint8_t* __restrict next, float weight, float next_weight, int size) {
  for (int i = 0; i < size; ++i) {
    line[i] = weight * static_cast<float>(from[i]) + next_weight * static_cast<float>(next[i]);
  }
}

MILLRACE_VECTORIZED
void add_scaled(float* __restrict line, const uint8_t* __restrict from, float weight, int size) {
  for (int i = 0; i < size; ++i) line[i] += weight * static_cast<float>(from[i]);
}

MILLRACE_VECTORIZED
void add_scaled_pair(float* __restrict line, const uint8_t* __restrict from,
                     const uint8_t* __restrict next, float weight, float next_weight, int size) {
  for (int i = 0; i < size; ++i) {
    line[i] += weight * static_cast<float>(from[i]) + next_weight * static_cast<float>(next[i]);
  }
}

// All pixels take the same number of taps, the weights past a pixel's own being zero: a loop of
// known length costs less than its branches.
template <int Taps>
void gather_colour(const float* line, float* output, int width, int stride,
                   const ResizeWorkspace& workspace, int offset, bool mirrored) {
  const float* weights = workspace.column_weights.data();
  for (int x = 0; x < width; ++x, weights += stride) {
    const float* from = line + 3 * (workspace.column_first[static_cast<size_t>(x)] - offset);
    Lanes sum = *reinterpret_cast<const Lanes*>(from) * weights[0];
    for (int k = 1; k < (Taps > 0 ? Taps : stride); ++k) {
      sum += *reinterpret_cast<const Lanes*>(from + 3 * k) * weights[k];
    }
    *reinterpret_cast<Lanes*>(output + 4 * (mirrored ? width - 1 - x : x)) = sum;
  }
}

void gather_gray(const float* line, float* output, int width, int stride,
                 const ResizeWorkspace& workspace, int offset, bool mirrored) {
  const float* weights = workspace.column_weights.data();
  for (int x = 0; x < width; ++x, weights += stride) {
    const float* from = line + workspace.column_first[static_cast<size_t>(x)] - offset;
    const int count = workspace.column_count[static_cast<size_t>(x)];
    float sum = 0;
    for (int k = 0; k < count; ++k) sum += from[k] * weights[k];
    output[mirrored ? width - 1 - x : x] = sum;
  }
}

}  // namespace

void resize(const ImageView& view, const PixelRegion& region, int height, int width, bool mirrored,
            Surroundings surroundings, ResizeWorkspace& workspace,
            const std::function<void(int, float*)>& row) {
  const int column_stride =
      make_taps(region.left, region.width, view.width, width, surroundings, workspace.column_first,
                workspace.column_count, workspace.column_weights);
  const int row_stride = make_taps(region.top, region.height, view.height, height, surroundings,
                                   workspace.row_first, workspace.row_count, workspace.row_weights);
  const int channels = view.channels;
  const int left = workspace.column_first.front();
  const int right = workspace.column_first.back() + workspace.column_count.back();
  const int values = (right - left) * channels;
  workspace.line.assign(static_cast<size_t>(values) + 3 * static_cast<size_t>(column_stride) + 4,
                        0.0f);
  workspace.output.resize(static_cast<size_t>(width) * resize_lanes(channels));
  float* line = workspace.line.data();
  const int taps = *std::max_element(workspace.column_count.begin(), workspace.column_count.end());
  const auto gather = taps <= 2   ? gather_colour<2>
                      : taps <= 3 ? gather_colour<3>
                      : taps <= 4 ? gather_colour<4>
                                  : gather_colour<0>;
  for (int y = 0; y < height; ++y) {
    const float* weights = &workspace.row_weights[static_cast<size_t>(y) * row_stride];
    const int first = workspace.row_first[static_cast<size_t>(y)];
    const int count = workspace.row_count[static_cast<size_t>(y)];
    const auto input = [&](int k) { return view.row(first + k) + left * channels; };
    int k = std::min(2, count);
    if (count == 1) {
      set_scaled(line, input(0), weights[0], values);
    } else {
      set_scaled_pair(line, input(0), input(1), weights[0], weights[1], values);
    }
    for (; k + 1 < count; k += 2) {
      add_scaled_pair(line, input(k), input(k + 1), weights[k], weights[k + 1], values);
    }
    if (k < count) add_scaled(line, input(k), weights[k], values);
    if (channels == 3) {
      gather(line, workspace.output.data(), width, column_stride, workspace, left, mirrored);
    } else {
      gather_gray(line, workspace.output.data(), width, column_stride, workspace, left, mirrored);
    }
    row(y, workspace.output.data());
  }
}

}  // namespace millrace::data
