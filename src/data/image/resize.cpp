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

// Two or four rows at a time, of which some may have the weight 0.
struct Rows {
  const uint8_t* __restrict from[4];
  float weights[4];
};

MILLRACE_INLINE float pair(const Rows& rows, int k, int i) {
  return rows.weights[k] * static_cast<float>(rows.from[k][i]) +
         rows.weights[k + 1] * static_cast<float>(rows.from[k + 1][i]);
}

MILLRACE_VECTORIZED
void set_pair(float* __restrict line, const Rows& __restrict given, int size) {
  const Rows rows = given;
  for (int i = 0; i < size; ++i) line[i] = pair(rows, 0, i);
}

MILLRACE_VECTORIZED
void set_four(float* __restrict line, const Rows& __restrict given, int size) {
  const Rows rows = given;
  for (int i = 0; i < size; ++i) line[i] = pair(rows, 0, i) + pair(rows, 2, i);
}

MILLRACE_VECTORIZED
void add_four(float* __restrict line, const Rows& __restrict given, int size) {
  const Rows rows = given;
  for (int i = 0; i < size; ++i) line[i] += pair(rows, 0, i) + pair(rows, 2, i);
}

// All pixels take the same number of taps, the weights past a pixel's own being zero: a loop of
// known length costs less than its branches. `line` begins with column `offset`.
template <int Taps>
MILLRACE_INLINE void gather(const float* line, float* output, int width, int stride,
                            const ResizeWorkspace& workspace, int offset, bool mirrored) {
  const float* weights = workspace.column_weights.data();
  const int* first = workspace.column_first.data();
  const int step = mirrored ? -4 : 4;
  if (mirrored) output += 4 * (width - 1);
  for (int x = 0; x < width; ++x, weights += stride, output += step) {
    const float* from = line + 3 * (first[x] - offset);
    Lanes sum = *reinterpret_cast<const Lanes*>(from) * weights[0];
    for (int k = 1; k < (Taps > 0 ? Taps : stride); ++k) {
      sum += *reinterpret_cast<const Lanes*>(from + 3 * k) * weights[k];
    }
    *reinterpret_cast<Lanes*>(output) = sum;
  }
}

using Gather = void(const float*, float*, int, int, const ResizeWorkspace&, int, bool);

MILLRACE_VECTORIZED
void gather_two(const float* line, float* output, int width, int stride,
                const ResizeWorkspace& workspace, int offset, bool mirrored) {
  gather<2>(line, output, width, stride, workspace, offset, mirrored);
}

MILLRACE_VECTORIZED
void gather_three(const float* line, float* output, int width, int stride,
                  const ResizeWorkspace& workspace, int offset, bool mirrored) {
  gather<3>(line, output, width, stride, workspace, offset, mirrored);
}

MILLRACE_VECTORIZED
void gather_four(const float* line, float* output, int width, int stride,
                 const ResizeWorkspace& workspace, int offset, bool mirrored) {
  gather<4>(line, output, width, stride, workspace, offset, mirrored);
}

MILLRACE_VECTORIZED
void gather_many(const float* line, float* output, int width, int stride,
                 const ResizeWorkspace& workspace, int offset, bool mirrored) {
  gather<0>(line, output, width, stride, workspace, offset, mirrored);
}

Gather* gather_of(int taps) {
  switch (taps) {
    case 1:
    case 2:
      return gather_two;
    case 3:
      return gather_three;
    case 4:
      return gather_four;
    default:
      return gather_many;
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
  Gather* const gather_colour = gather_of(taps);
  for (int y = 0; y < height; ++y) {
    const float* weights = &workspace.row_weights[static_cast<size_t>(y) * row_stride];
    const int first = workspace.row_first[static_cast<size_t>(y)];
    const int count = workspace.row_count[static_cast<size_t>(y)];
    for (int k = 0; k < count; k += 4) {
      Rows rows;
      for (int j = 0; j < 4; ++j) {
        const bool used = k + j < count;
        rows.from[j] = view.row(first + (used ? k + j : k)) + left * channels;
        rows.weights[j] = used ? weights[k + j] : 0.0f;
      }
      (k > 0 ? add_four : count <= 2 ? set_pair : set_four)(line, rows, values);
    }
    if (channels == 3) {
      gather_colour(line, workspace.output.data(), width, column_stride, workspace, left, mirrored);
    } else {
      gather_gray(line, workspace.output.data(), width, column_stride, workspace, left, mirrored);
    }
    row(y, workspace.output.data());
  }
}

}  // namespace millrace::data
