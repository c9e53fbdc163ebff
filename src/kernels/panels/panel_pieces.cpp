#include "kernels/panels/panel_pieces.h"

#include <algorithm>

namespace millrace::kernels::panels {

int64_t next_columns(int64_t left, const PanelLoops& loops) {
  return divided_up(left, divided_up(left, loops.columns));
}

std::vector<Piece> pieces_of(int64_t begin, int64_t end, int64_t pixels, int64_t most) {
  std::vector<Piece> pieces;
  if (pixels <= 0) return pieces;
  const int64_t together = std::max<int64_t>(1, most / pixels);
  const int64_t part = divided_up(pixels, divided_up(pixels, most));
  for (int64_t image = begin; image < end; image += together) {
    for (int64_t first = 0; first < pixels; first += part) {
      pieces.push_back(
          {image, std::min(together, end - image), first, std::min(part, pixels - first)});
    }
  }
  return pieces;
}

int64_t largest_of(const std::vector<Piece>& pieces) {
  int64_t largest = 0;
  for (const Piece& piece : pieces) largest = std::max(largest, piece.pixels());
  return largest;
}

Phase forward_phase(const ConvolutionProblem& problem) {
  const graph::Shape& w = problem.w.shape;
  const graph::Shape& y = problem.y.shape;
  Phase phase;
  for (int64_t tap = 0; tap < w[2] * w[3]; ++tap) {
    phase.taps.push_back({tap, tap / w[3] * problem.dilation[0] - problem.padding[0],
                          tap % w[3] * problem.dilation[1] - problem.padding[1]});
  }
  phase.down = y[2];
  phase.target = {y[2], y[3], y[3], 1, 0, 0};
  phase.source_stride = problem.stride[0];
  return phase;
}

// Pixel `top` + stride * i of an input gets tap k from output i + (top + padding - k) / stride.
std::vector<Phase> data_phases(const ConvolutionProblem& problem) {
  const graph::Shape& w = problem.w.shape;
  const graph::Shape& x = problem.x.shape;
  const int64_t stride = problem.stride[0];
  std::vector<Phase> phases;
  int64_t squares = 0;
  for (int64_t remainder = 0; remainder < stride * stride; ++remainder) {
    const int64_t top = remainder / stride;
    const int64_t left = remainder % stride;
    if (top >= x[2] || left >= x[3]) continue;
    Phase phase;
    phase.down = divided_up(x[2] - top, stride);
    phase.target = {x[2], x[3], divided_up(x[3] - left, stride), stride, top, left};
    phase.weights = squares;
    for (int64_t tap = 0; tap < w[2] * w[3]; ++tap) {
      const int64_t down = top + problem.padding[0] - tap / w[3] * problem.dilation[0];
      const int64_t across = left + problem.padding[1] - tap % w[3] * problem.dilation[1];
      if (down % stride != 0 || across % stride != 0) continue;
      phase.taps.push_back({tap, down / stride, across / stride});
    }
    squares += static_cast<int64_t>(phase.taps.size());
    phases.push_back(phase);
  }
  return phases;
}

bool lies_ready(const Phase& phase, const Blocked& source) {
  return phase.taps.size() == 1 && phase.source_stride == 1 && phase.taps[0].top == 0 &&
         phase.taps[0].left == 0 && phase.down == source.height &&
         phase.target.across == source.width;
}

void gather_planes(const PanelLoops& loops, const float* images, const Blocked& source,
                   const Phase& phase, const Piece& piece, int64_t first, int64_t last,
                   float* pixels) {
  const auto taps = static_cast<int64_t>(phase.taps.size());
  for (int64_t plane = first; plane < last; ++plane) {
    const Tap& tap = phase.taps[static_cast<size_t>(plane % taps)];
    const PixelGrid grid = {source.height,       source.width, phase.target.across,
                            phase.source_stride, tap.top,      tap.left};
    for (int64_t image = 0; image < piece.images; ++image) {
      loops.gather(images + source.offset(piece.image + image, plane / taps), grid, piece.first,
                   piece.count, pixels);
      pixels += piece.count * loops.lanes;
    }
  }
}

}  // namespace millrace::kernels::panels
