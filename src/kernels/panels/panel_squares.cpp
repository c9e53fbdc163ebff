#include "kernels/panels/panel_squares.h"

#include <algorithm>

#include "base/parallel.h"

namespace millrace::kernels::panels {
namespace {

constexpr int64_t kSquarePiece = 112;     // pixels: a plane and three others, in the nearest cache
constexpr int64_t kSquareChannels = 256;  // whose pixels stay in the next cache
constexpr int64_t kFewWeights = 1 << 16;  // of which several sums are made at a time
constexpr int64_t kPanelImageGroups = 8;  // that these are of

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

std::unique_ptr<Kernel> make_panel_squares(const ConvolutionProblem& problem, int threads,
                                           const PanelLoops& loops) {
  return std::make_unique<PanelSquares>(problem, threads, loops);
}

}  // namespace millrace::kernels::panels
