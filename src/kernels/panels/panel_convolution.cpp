#include "kernels/panels/panel_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "kernels/panels/panel_loops.h"
#include "kernels/processor.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kPiece = 196;        // pixels that are worked on at a time
constexpr int64_t kPixelDepth = 128;   // channels of a product: weights stay in the nearest cache
constexpr int64_t kSquarePiece = 112;  // of these: a plane and three others, in the nearest cache
constexpr int64_t kSquareChannels = 256;  // whose pixels stay in the next cache
constexpr int64_t kFewWeights = 1 << 16;  // of which several sums are made at a time
constexpr int64_t kPanelImageGroups = 8;  // that these are of

int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

// Of `left` columns, so that all products have about equally many.
int64_t next_columns(int64_t left, const PanelLoops& loops) {
  return divided_up(left, divided_up(left, loops.columns));
}

// Images in blocks: `blocks` planes each.
struct Blocked {
  int64_t images;
  int64_t blocks;
  int64_t height;
  int64_t width;
  int64_t lanes;

  Blocked(const graph::Shape& shape, int64_t block)
      : images(shape[0]),
        blocks(shape[1] / block),
        height(shape[2]),
        width(shape[3]),
        lanes(block) {}

  int64_t plane() const { return height * width * lanes; }
  int64_t offset(int64_t image, int64_t block) const { return (image * blocks + block) * plane(); }
};

// Where a tap of the kernel reads, for the pixels of a grid.
struct Tap {
  int64_t index;  // in the kernel
  int64_t top;
  int64_t left;
};

// Pixels of what is made that see the same taps: all, or for gradients of inputs with a stride
// those that leave the same remainders.
struct Phase {
  std::vector<Tap> taps;
  int64_t down = 0;
  PixelGrid target;  // in what is made
  int64_t source_stride = 1;
  int64_t weights = 0;  // where those of its taps begin, in squares

  int64_t pixels() const { return down * target.across; }
};

// Pixels first .. first + count of each of `images` images.
struct Piece {
  int64_t image;
  int64_t images;
  int64_t first;
  int64_t count;

  int64_t pixels() const { return images * count; }
};

// Of images `begin` to `end`, about `most` pixels each. Small images go several at a time, large
// ones in parts.
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

// Whether the pixels of a phase lie in the source as they are wanted.
bool lies_ready(const Phase& phase, const Blocked& source) {
  return phase.taps.size() == 1 && phase.source_stride == 1 && phase.taps[0].top == 0 &&
         phase.taps[0].left == 0 && phase.down == source.height &&
         phase.target.across == source.width;
}

// Planes first .. last of what the piece sees; a plane is a tap of a block of channels.
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

// Of the channels from this on, for a result that lies `at` so many floats behind the first.
Ending part_of(Ending ending, int64_t channel, int64_t at) {
  if (ending.factor != nullptr) ending.factor += channel;
  if (ending.offset != nullptr) ending.offset += channel;
  if (ending.residual != nullptr) ending.residual += at;
  return ending;
}

// Outputs, and gradients of inputs.
class PanelPixels : public Kernel {
 public:
  PanelPixels(const ConvolutionProblem& problem, int threads, const PanelLoops& loops)
      : loops_(loops),
        turned_(problem.direction == ConvolutionDirection::backward_data),
        source_((turned_ ? problem.y : problem.x).shape, loops.lanes),
        target_((turned_ ? problem.x : problem.y).shape, loops.lanes),
        taps_(problem.w.shape[2] * problem.w.shape[3]),
        scattered_(turned_ && problem.stride[0] > 1),
        ending_(problem.ending()),
        threads_(threads),
        phases_(turned_ ? data_phases(problem) : std::vector<Phase>{forward_phase(problem)}) {
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      const std::vector<Piece> pieces =
          pieces_of(0, target_.images, phases_[phase].pixels(), kPiece);
      largest_ = std::max(largest_, largest_of(pieces));
      for (const Piece& piece : pieces) tasks_.push_back({phase, piece});
    }
    // Few pieces are divided by columns, too.
    const auto tasks = std::max<int64_t>(1, static_cast<int64_t>(tasks_.size()));
    parts_ =
        threads > 1 ? std::clamp<int64_t>(divided_up(4 * threads_, tasks), 1, target_.blocks) : 1;
  }

  uint64_t workspace_bytes() const override {
    return static_cast<uint64_t>(turned_floats() + threads_ * piece_floats()) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const auto* source = arguments.input<const float>(0);
    const auto* weights = arguments.input<const float>(1);
    auto* target = arguments.output<float>(0);
    auto* workspace = reinterpret_cast<float*>(arguments.workspace);
    float* pieces = workspace + turned_floats();
    if (turned_) {
      turn(weights, workspace);
      weights = workspace;
    }
    const Ending ending = ending_.of(arguments);
    const int64_t items = static_cast<int64_t>(tasks_.size()) * parts_;
    parallel_for(threads_, 1, [&](int64_t thread) {
      for (int64_t item = items * thread / threads_; item < items * (thread + 1) / threads_;
           ++item) {
        const auto task = static_cast<size_t>(item / parts_);
        const bool last = task + 1 == tasks_.size();
        convolve(tasks_[task], last ? nullptr : &tasks_[task + 1], item % parts_, source, weights,
                 ending, pieces + thread * piece_floats(), target);
      }
    });
  }

 private:
  struct Task {
    size_t phase;
    Piece piece;
  };

  int64_t square() const { return loops_.lanes * loops_.lanes; }
  int64_t turned_floats() const {
    return turned_ ? source_.blocks * target_.blocks * taps_ * square() : 0;
  }
  // Of gathered pixels, and of results that have to be scattered.
  int64_t piece_floats() const {
    return largest_ * (kPixelDepth + (scattered_ ? target_.blocks * loops_.lanes : 0));
  }

  // By phase, then plane of inputs, plane of outputs and tap: squares of outputs' rows.
  void turn(const float* weights, float* turned) const {
    parallel_for(target_.blocks, 1, [&](int64_t input) {
      for (const Phase& phase : phases_) {
        const auto taps = static_cast<int64_t>(phase.taps.size());
        float* to =
            turned + (phase.weights * target_.blocks + input * taps) * source_.blocks * square();
        for (int64_t output = 0; output < source_.blocks; ++output) {
          for (const Tap& tap : phase.taps) {
            loops_.turn(
                weights + ((output * target_.blocks + input) * taps_ + tap.index) * square(), to);
            to += square();
          }
        }
      }
    });
  }

  // Planes of pixels that are wanted after those of the products from `plane` on.
  struct Coming {
    const Piece* piece = nullptr;
    int64_t plane = 0;
    int64_t count = 0;
  };
  Coming coming_after(const Task& task, const Task* next, int64_t plane) const {
    const int64_t most = kPixelDepth / loops_.lanes;
    if (!lies_ready(phases_[task.phase], source_)) return {};
    if (plane + most < source_.blocks) {
      return {&task.piece, plane + most, std::min(most, source_.blocks - plane - most)};
    }
    if (next == nullptr || parts_ > 1 || next->piece.images != task.piece.images ||
        next->piece.count != task.piece.count) {
      return {};
    }
    return {&next->piece, 0, std::min(most, source_.blocks)};
  }

  void convolve(const Task& task, const Task* next, int64_t part, const float* source,
                const float* weights, const Ending& ending, float* gathered, float* target) const {
    const Phase& phase = phases_[task.phase];
    const Piece& piece = task.piece;
    const bool ready = lies_ready(phase, source_);
    const int64_t begin = target_.blocks * part / parts_;
    const int64_t end = target_.blocks * (part + 1) / parts_;
    const int64_t depth = source_.blocks * static_cast<int64_t>(phase.taps.size());
    const float* squares = weights + phase.weights * target_.blocks * source_.blocks * square();
    float* results = gathered + largest_ * kPixelDepth;
    const int64_t results_plane = piece.pixels() * loops_.lanes;
    if (depth == 0) std::fill(results, results + target_.blocks * results_plane, 0.0f);

    PixelProduct product = {};
    product.a_plane = ready ? source_.plane() : results_plane;
    product.pixels = piece.count;
    product.b_column = depth * square();
    product.c_plane = scattered_ ? results_plane : target_.plane();
    Ending own;
    for (int64_t plane = 0; plane < depth; plane += product.depth) {
      product.depth = std::min(kPixelDepth / loops_.lanes, depth - plane);
      product.add = plane > 0;
      const bool last = plane + product.depth == depth;
      product.ending = ending.any() && last ? &own : nullptr;
      if (!ready) {
        gather_planes(loops_, source, source_, phase, piece, plane, plane + product.depth,
                      gathered);
      }
      const Coming coming = coming_after(task, next, plane);
      for (int64_t column = begin; column < end; column += product.columns) {
        product.columns = next_columns(end - column, loops_);
        product.b = squares + (column * depth + plane) * square();
        const int64_t brought = coming.count * (column - begin) / (end - begin);
        product.next_planes =
            coming.count * (column - begin + product.columns) / (end - begin) - brought;
        for (int64_t image = 0; image < piece.images; ++image) {
          if (coming.piece != nullptr) {
            product.next = source + coming.piece->first * loops_.lanes +
                           source_.offset(coming.piece->image + image, coming.plane + brought);
          }
          const int64_t inside = image * piece.count * loops_.lanes;
          const int64_t first = piece.first * loops_.lanes;
          product.a = ready ? source + source_.offset(piece.image + image, plane) + first
                            : gathered + inside;
          const int64_t at = target_.offset(piece.image + image, column) + first;
          product.c = scattered_ ? results + column * results_plane + inside : target + at;
          own = part_of(ending, column * loops_.lanes, at);
          loops_.multiply_pixels(product);
        }
      }
    }
    if (scattered_) scatter(phase, piece, begin, end, results, target);
  }

  void scatter(const Phase& phase, const Piece& piece, int64_t begin, int64_t end,
               const float* results, float* target) const {
    for (int64_t column = begin; column < end; ++column) {
      for (int64_t image = 0; image < piece.images; ++image) {
        const int64_t index = (column * piece.images + image) * piece.count;
        loops_.scatter(results + index * loops_.lanes, phase.target, piece.first, piece.count,
                       target + target_.offset(piece.image + image, column));
      }
    }
  }

  const PanelLoops& loops_;
  bool turned_;
  Blocked source_;
  Blocked target_;
  int64_t taps_;
  bool scattered_;  // results are, behind the products
  EndingInputs ending_;
  int64_t threads_;
  std::vector<Phase> phases_;
  std::vector<Task> tasks_;
  int64_t largest_ = 0;  // pixels of a piece
  int64_t parts_ = 1;
};

// Gradients of weights. Where these are few, of groups of images, which are added up at the end;
// else every thread goes through all pixels for planes of its own.
class PanelSquares : public Kernel {
 public:
  PanelSquares(const ConvolutionProblem& problem, int threads, const PanelLoops& loops)
      : loops_(loops),
        source_(problem.x.shape, loops.lanes),
        gradient_(problem.y.shape, loops.lanes),
        phase_(forward_phase(problem)),
        ready_(lies_ready(phase_, source_)),
        threads_(threads),
        depth_(source_.blocks * static_cast<int64_t>(phase_.taps.size())),
        groups_(weights() <= kFewWeights ? std::min(kPanelImageGroups, source_.images) : 1),
        planes_(std::min(kSquareChannels / loops.lanes,
                         groups_ > 1 ? depth_ : divided_up(depth_, threads))),
        chunks_(divided_up(depth_, planes_)),
        parts_(groups_ > 1 ? 1 : std::clamp<int64_t>(threads / chunks_, 1, gradient_.blocks)) {
    for (int64_t group = 0; group < groups_; ++group) {
      pieces_.push_back(pieces_of(source_.images * group / groups_,
                                  source_.images * (group + 1) / groups_, phase_.pixels(),
                                  kSquarePiece));
    }
  }

  uint64_t workspace_bytes() const override {
    const int64_t sums = groups_ > 1 ? groups_ * weights() : 0;
    return static_cast<uint64_t>(sums + threads_ * piece_floats()) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const auto* x = arguments.input<const float>(0);
    const auto* dy = arguments.input<const float>(1);
    auto* dw = arguments.output<float>(0);
    auto* sums = reinterpret_cast<float*>(arguments.workspace);
    float* gathered = groups_ > 1 ? sums + groups_ * weights() : sums;
    const int64_t items = groups_ * chunks_ * parts_;
    parallel_for(threads_, 1, [&](int64_t thread) {
      for (int64_t item = items * thread / threads_; item < items * (thread + 1) / threads_;
           ++item) {
        const int64_t group = item / (chunks_ * parts_);
        const int64_t first = item / parts_ % chunks_ * planes_;
        sum_group(static_cast<size_t>(group), first, std::min(depth_, first + planes_),
                  item % parts_, x, dy, gathered + thread * piece_floats(),
                  groups_ > 1 ? sums + group * weights() : dw);
      }
    });
    if (groups_ > 1) add_groups(sums, dw);
  }

 private:
  int64_t weights() const { return depth_ * gradient_.blocks * loops_.lanes * loops_.lanes; }
  int64_t piece_floats() const {
    int64_t largest = 0;
    for (const std::vector<Piece>& pieces : pieces_) {
      largest = std::max(largest, largest_of(pieces));
    }
    return ready_ ? 0 : largest * planes_ * loops_.lanes;
  }

  void sum_group(size_t group, int64_t first, int64_t last, int64_t part, const float* x,
                 const float* dy, float* gathered, float* dw) const {
    const std::vector<Piece>& pieces = pieces_[group];
    for (size_t i = 0; i < pieces.size(); ++i) {
      const Piece* next = i + 1 < pieces.size() ? &pieces[i + 1] : nullptr;
      sum(pieces[i], next, i > 0, first, last, part, x, dy, gathered, dw);
    }
  }

  void sum(const Piece& piece, const Piece* next, bool add, int64_t first, int64_t last,
           int64_t part, const float* x, const float* dy, float* gathered, float* dw) const {
    const int64_t lanes = loops_.lanes;
    const int64_t square = lanes * lanes;
    if (!ready_) gather_planes(loops_, x, source_, phase_, piece, first, last, gathered);
    SquareProduct product = {};
    product.a_image = ready_ ? source_.offset(1, 0) : piece.count * lanes;
    product.b_plane = gradient_.plane();
    product.b_image = gradient_.offset(1, 0);
    product.pixels = piece.count;
    product.images = piece.images;
    product.c_column = depth_ * square;
    product.add = add;
    const int64_t begin = gradient_.blocks * part / parts_;
    const int64_t end = gradient_.blocks * (part + 1) / parts_;
    const bool same = next != nullptr && next->images == piece.images && next->count == piece.count;
    int64_t ahead = ready_ ? first : last;
    for (int64_t column = begin; column < end; column += product.columns) {
      product.columns = next_columns(end - column, loops_);
      product.b = dy + gradient_.offset(piece.image, column) + piece.first * lanes;
      for (int64_t plane = first; plane < last; ++plane) {
        product.a = ready_ ? x + source_.offset(piece.image, plane) + piece.first * lanes
                           : gathered + (plane - first) * piece.pixels() * lanes;
        product.c = dw + (column * depth_ + plane) * square;
        for (NextPlane& coming : product.next) {
          coming = {product.a, product.a_image};
          if (!same || ahead - last >= end - begin) continue;
          coming = ahead < last
                       ? NextPlane{x + source_.offset(next->image, ahead), product.a_image}
                       : NextPlane{dy + gradient_.offset(next->image, begin + ahead - last),
                                   product.b_image};
          coming.pixels += next->first * lanes;
          ++ahead;
        }
        loops_.multiply_squares(product);
      }
    }
  }

  void add_groups(const float* sums, float* dw) const {
    constexpr int64_t kGrain = 4096;
    parallel_ranges(weights(), kGrain, [&](int, int64_t begin, int64_t end) {
      std::copy(sums + begin, sums + end, dw + begin);
      for (int64_t group = 1; group < groups_; ++group) {
        const float* more = sums + group * weights();
        for (int64_t i = begin; i < end; ++i) dw[i] += more[i];
      }
    });
  }

  const PanelLoops& loops_;
  Blocked source_;
  Blocked gradient_;
  Phase phase_;
  bool ready_;  // pixels lie as they are wanted
  int64_t threads_;
  int64_t depth_;
  int64_t groups_;
  int64_t planes_;  // at a time
  int64_t chunks_;
  int64_t parts_;
  std::vector<std::vector<Piece>> pieces_;  // of each group
};

}  // namespace

const PanelLoops* panel_loops_here() { return widest_loops(panel_loops_avx512, panel_loops_avx2); }

std::string refusal_of_panels(const ConvolutionProblem& problem, const PanelLoops* loops) {
  if (loops == nullptr) return "there are no loops for this processor";
  if (problem.groups > 1 || problem.halves) return "groups and bf16 are not served";
  if (problem.bias && problem.direction == ConvolutionDirection::backward_weights) {
    return "gradients of biases are not served";
  }
  if (problem.stride[0] != problem.stride[1]) return "only equal strides are served";
  const graph::Shape& w = problem.w.shape;
  if (w[0] % loops->lanes != 0 || w[1] % loops->lanes != 0) {
    return fmt::format("channels are no multiples of {}", loops->lanes);
  }
  return {};
}

std::unique_ptr<Kernel> make_panel_convolution(const ConvolutionProblem& problem, int threads,
                                               const PanelLoops& loops) {
  if (problem.direction == ConvolutionDirection::backward_weights) {
    return std::make_unique<PanelSquares>(problem, threads, loops);
  }
  return std::make_unique<PanelPixels>(problem, threads, loops);
}

}  // namespace millrace::kernels
