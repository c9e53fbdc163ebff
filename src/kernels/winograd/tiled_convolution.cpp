#include "kernels/winograd/tiled_convolution.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/processor.h"
#include "kernels/winograd/tile_loops.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kLine = 16;         // floats of a cache line
constexpr int64_t kDepth = 256;       // of products at a time: a panel stays in the nearest cache
constexpr int64_t kFewestTiles = 48;  // of a piece: each reads all weights
constexpr int64_t kMostTiles = 96;
constexpr int64_t kPieceFloats = int64_t{3} << 19;  // at the points, of a part's piece
constexpr int64_t kRoundFloats = int64_t{1} << 22;  // at the points, of all parts for weights

int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// An odd number of cache lines, so that the 36 points of a tile lie in different places of a cache.
int64_t plane_of(int64_t floats) {
  const int64_t lines = rounded_up(floats, kLine) / kLine;
  return (lines + 1 - lines % 2) * kLine;
}

// What is cut into tiles and what comes of it; of a gradient of inputs the images change sides.
struct Sides {
  TiledImages from;
  TiledImages to;
  int64_t tiles = 0;

  Sides(const ConvolutionProblem& problem, const TileTransforms& transforms) {
    const bool turned = problem.direction == ConvolutionDirection::backward_data;
    const graph::Shape& x = turned ? problem.y.shape : problem.x.shape;
    const graph::Shape& y = turned ? problem.x.shape : problem.y.shape;
    const int64_t padding =
        turned ? transforms.kernel - 1 - problem.padding[0] : problem.padding[0];
    const int64_t down = rounded_up(y[2], transforms.tile) / transforms.tile;
    const int64_t across = rounded_up(y[3], transforms.tile) / transforms.tile;
    from = {x[1], x[2], x[3], down, across, padding};
    to = {y[1], y[2], y[3], down, across, 0};
    tiles = x[0] * down * across;
  }
};

// What both kinds of kernels are made of.
struct TiledWork {
  TiledWork(const ConvolutionProblem& problem, int parts, const TileLoops& chosen)
      : loops(chosen),
        transforms(*chosen.transforms_of(problem.w.shape[2])),
        sides(problem, transforms),
        threads(parts),
        panels(rounded_up(sides.to.channels, loops.panel) / loops.panel) {}

  // A part's tiles in as few equal pieces as the limit allows.
  void cut_into_pieces(int64_t most, int64_t parts) {
    const int64_t share = (sides.tiles + parts - 1) / parts;
    pieces = std::max<int64_t>(1, (share + most - 1) / most);
    piece = (share + pieces - 1) / pieces;
    left_plane = plane_of(piece * sides.from.channels);
    right_plane = plane_of(piece * panels * loops.panel);
    weight_plane = plane_of(sides.from.channels * panels * loops.panel);
  }
  int64_t most_tiles(int64_t floats) const {
    const int64_t each = kWinogradPoints * (sides.from.channels + sides.to.channels);
    return std::clamp(floats / each, kFewestTiles, kMostTiles);
  }
  // From which tile of `count` on the pieces with that number are.
  int64_t begin_of(int64_t index, int64_t count) const { return count * index / pieces; }
  int64_t left_floats() const { return kWinogradPoints * left_plane; }
  int64_t right_floats() const { return kWinogradPoints * right_plane; }
  int64_t weight_floats() const { return kWinogradPoints * weight_plane; }

  const TileLoops& loops;
  const TileTransforms& transforms;
  Sides sides;
  int64_t threads;
  int64_t panels;
  int64_t piece = 0;   // tiles of the largest
  int64_t pieces = 0;  // of a part
  int64_t left_plane = 0;
  int64_t right_plane = 0;
  int64_t weight_plane = 0;
};

// Outputs, and gradients of inputs: every part takes whole pieces of tiles from the images to the
// result.
class TiledForward : public Kernel {
 public:
  TiledForward(const ConvolutionProblem& problem, int threads, const TileLoops& loops)
      : work_(problem, threads, loops),
        turned_(problem.direction == ConvolutionDirection::backward_data),
        ending_(problem.ending()) {
    work_.cut_into_pieces(work_.most_tiles(kPieceFloats), threads);
  }

  uint64_t workspace_bytes() const override {
    const int64_t floats =
        work_.weight_floats() + work_.threads * (work_.left_floats() + work_.right_floats());
    return static_cast<uint64_t>(floats) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const TileLoops& loops = work_.loops;
    const int64_t inputs = work_.sides.from.channels;
    const int64_t outputs = work_.sides.to.channels;
    auto* weights = reinterpret_cast<float*>(arguments.workspace);
    float* pieces = weights + work_.weight_floats();
    const auto* w = arguments.input<const float>(1);
    parallel_for(inputs / loops.lanes, 1, [&](int64_t block) {
      if (turned_) {
        work_.transforms.cut_turned_weights(w, outputs, inputs, block, work_.weight_plane, weights);
      } else {
        work_.transforms.cut_weights(w, inputs, outputs, block, work_.weight_plane, weights);
      }
    });
    const Ending ending = ending_.of(arguments);
    parallel_for(work_.threads, 1, [&](int64_t part) {
      float* left = pieces + part * (work_.left_floats() + work_.right_floats());
      const int64_t first = work_.sides.tiles * part / work_.threads;
      const int64_t count = work_.sides.tiles * (part + 1) / work_.threads - first;
      for (int64_t index = 0; index < work_.pieces; ++index) {
        const int64_t begin = work_.begin_of(index, count);
        convolve(first + begin, work_.begin_of(index + 1, count) - begin,
                 arguments.input<const float>(0), weights, ending, left,
                 arguments.output<float>(0));
      }
    });
  }

 private:
  void convolve(int64_t first, int64_t count, const float* x, const float* weights,
                const Ending& ending, float* left, float* y) const {
    const TileLoops& loops = work_.loops;
    const int64_t inputs = work_.sides.from.channels;
    float* right = left + work_.left_floats();
    TilePiece piece = {first, count, work_.piece, work_.left_plane};
    work_.transforms.cut(x, work_.sides.from, piece, left);
    for (int64_t point = 0; point < kWinogradPoints; ++point) {
      const float* a = left + point * work_.left_plane;
      const float* b = weights + point * work_.weight_plane;
      const bool last = point + 1 == kWinogradPoints;
      for (int64_t k = 0; k < inputs; k += kDepth) {
        PanelProduct product = {a + k,
                                inputs,
                                1,
                                piece.count,
                                std::min(kDepth, inputs - k),
                                b + k * loops.panel,
                                inputs * loops.panel,
                                work_.panels,
                                right + point * work_.right_plane,
                                work_.piece * loops.panel,
                                k > 0};
        if (k + kDepth < inputs) {
          product.next_b = {product.b + kDepth * loops.panel, kDepth * loops.panel};
        } else if (!last) {
          product.next_a = {a + work_.left_plane, piece.count * inputs};
          product.next_b = {b + work_.weight_plane, std::min(kDepth, inputs) * loops.panel};
          product.next_c = {product.c + work_.right_plane,
                            work_.panels * work_.piece * loops.panel};
        }
        loops.multiply(product);
      }
    }
    piece.plane = work_.right_plane;
    work_.transforms.join(right, work_.sides.to, piece, ending, y);
  }

  TiledWork work_;
  bool turned_;
  EndingInputs ending_;
};

// Gradients of weights: round by round all parts cut the same piece, then add its products to those
// of the rounds before, each for other points and panels.
class TiledWeightGradient : public Kernel {
 public:
  TiledWeightGradient(const ConvolutionProblem& problem, int threads, const TileLoops& loops)
      : work_(problem, threads, loops), bias_(problem.bias) {
    work_.cut_into_pieces(work_.most_tiles(kRoundFloats), 1);
  }

  uint64_t workspace_bytes() const override {
    const int64_t floats = work_.weight_floats() + work_.left_floats() + work_.right_floats() +
                           work_.threads * work_.sides.to.channels;
    return static_cast<uint64_t>(floats) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const TileLoops& loops = work_.loops;
    const int64_t inputs = work_.sides.from.channels;
    const int64_t outputs = work_.sides.to.channels;
    auto* products = reinterpret_cast<float*>(arguments.workspace);
    float* left = products + work_.weight_floats();
    float* right = left + work_.left_floats();
    float* sums = right + work_.right_floats();
    std::fill(sums, sums + work_.threads * outputs, 0.0f);
    for (int64_t round = 0; round < work_.pieces; ++round) {
      parallel_for(work_.threads, 1, [&](int64_t part) {
        cut(round, part, arguments, left, right, sums + part * outputs);
      });
      parallel_for(kWinogradPoints * work_.panels, 1, [&](int64_t item) {
        const PanelProduct next = product_of(round, item + 1, left, right, products);
        PanelProduct product = product_of(round, item, left, right, products);
        // A point's panels share its left side: each brings a part of the next point's.
        const int64_t part = product.depth * inputs / work_.panels;
        const int64_t panel = item % work_.panels;
        if (item + 1 < kWinogradPoints * work_.panels) {
          product.next_b = {next.b, product.depth * loops.panel};
          product.next_c = {next.c, inputs * loops.panel};
        }
        if (item + work_.panels < kWinogradPoints * work_.panels) {
          product.next_a = {product.a + work_.left_plane + panel * part, part};
        }
        loops.multiply(product);
      });
    }
    parallel_for(inputs / loops.lanes, 1, [&](int64_t block) {
      work_.transforms.join_weights(products, inputs, outputs, block, work_.weight_plane,
                                    arguments.output<float>(0));
    });
    if (!bias_) return;
    auto* bias = arguments.output<float>(1);
    for (int64_t o = 0; o < outputs; ++o) {
      float sum = 0;
      for (int64_t part = 0; part < work_.threads; ++part) sum += sums[part * outputs + o];
      bias[o] = sum;
    }
  }

 private:
  int64_t tiles_of(int64_t round) const {
    return work_.begin_of(round + 1, work_.sides.tiles) - work_.begin_of(round, work_.sides.tiles);
  }

  // Of a point and a panel.
  PanelProduct product_of(int64_t round, int64_t item, const float* left, const float* right,
                          float* products) const {
    const int64_t inputs = work_.sides.from.channels;
    const int64_t point = item / work_.panels;
    const int64_t panel = item % work_.panels;
    return {left + point * work_.left_plane,
            1,
            inputs,
            inputs,
            tiles_of(round),
            right + point * work_.right_plane + panel * work_.piece * work_.loops.panel,
            0,
            1,
            products + point * work_.weight_plane + panel * inputs * work_.loops.panel,
            0,
            round > 0};
  }

  void cut(int64_t round, int64_t part, const KernelArguments& arguments, float* left, float* right,
           float* sums) const {
    const TileLoops& loops = work_.loops;
    const int64_t first = work_.begin_of(round, work_.sides.tiles);
    const int64_t count = tiles_of(round);
    const int64_t begin = count * part / work_.threads;
    const int64_t end = count * (part + 1) / work_.threads;
    TilePiece piece = {first + begin, end - begin, work_.piece, work_.left_plane};
    work_.transforms.cut(arguments.input<const float>(0), work_.sides.from, piece,
                         left + begin * work_.sides.from.channels);
    piece.plane = work_.right_plane;
    work_.transforms.cut_gradient(arguments.input<const float>(1), work_.sides.to, piece,
                                  right + begin * loops.panel, bias_ ? sums : nullptr);
  }

  TiledWork work_;
  bool bias_;
};

bool all_are(const graph::Shape& shape, int64_t value) {
  return std::all_of(shape.begin(), shape.end(), [&](int64_t size) { return size == value; });
}

}  // namespace

const TileLoops* tile_loops_here() { return widest_loops(tile_loops_avx512, tile_loops_avx2); }

std::string refusal_of_tiles(const ConvolutionProblem& problem, const TileLoops* loops) {
  if (loops == nullptr) return "there are no loops for this processor";
  if (problem.groups > 1 || problem.halves) return "groups and bf16 are not served";
  const graph::Shape& w = problem.w.shape;
  if (w[2] != w[3] || loops->transforms_of(w[2]) == nullptr || !all_are(problem.stride, 1) ||
      !all_are(problem.dilation, 1)) {
    return "only kernels of 3x3 and 5x5 with stride and dilation 1 are served";
  }
  if (problem.padding[0] != problem.padding[1] || problem.padding[0] >= w[2]) {
    return "only equal paddings below the kernel's size are served";
  }
  if (w[0] % loops->lanes != 0 || w[1] % loops->lanes != 0) {
    return fmt::format("channels are no multiples of {}", loops->lanes);
  }
  return {};
}

graph::Layout tiled_images(const TileLoops& loops) {
  return graph::Layout(fmt::format("aBcd{}b", loops.lanes));
}

graph::Layout tiled_weights(const TileLoops& loops) {
  return graph::Layout(fmt::format("ABcd{0}b{0}a", loops.lanes));
}

std::unique_ptr<Kernel> make_tiled_convolution(const ConvolutionProblem& problem, int threads,
                                               const TileLoops& loops) {
  if (problem.direction == ConvolutionDirection::backward_weights) {
    return std::make_unique<TiledWeightGradient>(problem, threads, loops);
  }
  return std::make_unique<TiledForward>(problem, threads, loops);
}

}  // namespace millrace::kernels
