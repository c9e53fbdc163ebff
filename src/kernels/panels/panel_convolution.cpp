#include "kernels/panels/panel_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "kernels/panels/panel_loops.h"
#include "kernels/panels/panel_pieces.h"
#include "kernels/panels/panel_squares.h"
#include "kernels/processor.h"

namespace millrace::kernels {
namespace panels {
namespace {

constexpr int64_t kPiece = 196;       // pixels that are worked on at a time
constexpr int64_t kPixelDepth = 128;  // channels of a product: weights stay in the nearest cache

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

}  // namespace
}  // namespace panels

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
    return panels::make_panel_squares(problem, threads, loops);
  }
  return std::make_unique<panels::PanelPixels>(problem, threads, loops);
}

}  // namespace millrace::kernels
