#include "kernels/depthwise/depthwise_convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/parallel.h"
#include "kernels/depthwise/row_loops.h"
#include "kernels/processor.h"

namespace millrace::kernels {
namespace {

constexpr int64_t kPieceOutputs = 256;  // whose products are summed by themselves
constexpr int64_t kImageGroups = 8;     // that weights' gradients are summed over apart

// Images in blocks of channels.
struct ChannelPlanes {
  int64_t images;
  int64_t blocks;
  int64_t height;
  int64_t row;  // floats
  int64_t width;

  ChannelPlanes(const graph::Shape& shape, int64_t lanes)
      : images(shape[0]),
        blocks(shape[1] / lanes),
        height(shape[2]),
        row(shape[3] * lanes),
        width(shape[3]) {}

  // A row of an image's block, where the blocks of all images are counted.
  int64_t offset(int64_t block, int64_t at) const { return (block * height + at) * row; }
};

// The places of a row or column that see the same taps: `start`, `start` + step and so on. The
// first of them sees the sources from `offset` on, each next one `stride` further.
struct AxisPhase {
  int64_t start = 0;
  int64_t count = 0;
  int64_t offset = 0;
  std::vector<int64_t> taps = {};
};

AxisPhase forward_axis(int64_t taps, int64_t padding, int64_t count) {
  AxisPhase phase = {0, count, -padding};
  for (int64_t tap = 0; tap < taps; ++tap) phase.taps.push_back(tap);
  return phase;
}

// Place start + stride * i of the inputs gets tap k from output i + (start + padding - k) / stride.
std::vector<AxisPhase> data_axis(int64_t taps, int64_t padding, int64_t stride, int64_t size) {
  std::vector<AxisPhase> phases;
  for (int64_t start = 0; start < stride; ++start) {
    AxisPhase phase = {start, std::max<int64_t>(0, (size - start + stride - 1) / stride)};
    for (int64_t tap = taps - 1; tap >= 0; --tap) {
      if ((start + padding - tap) % stride != 0) continue;
      if (phase.taps.empty()) phase.offset = (start + padding - tap) / stride;
      phase.taps.push_back(tap);
    }
    phases.push_back(phase);
  }
  return phases;
}

// The rows of taps that see rows of the source, and which of them is the first.
struct SeenRows {
  int64_t first_tap;
  int64_t first_row;
  int64_t count;

  SeenRows(int64_t top, int64_t taps, int64_t height)
      : first_tap(std::clamp<int64_t>(-top, 0, taps)),
        first_row(top + first_tap),
        count(std::max<int64_t>(0, std::min(taps, height - top) - first_tap)) {}
};

// Channels of a group, of which each sees all; 0 if they do not make as many as they see.
int64_t members_of(const ConvolutionProblem& problem) {
  if (problem.widened.narrow > 0) return problem.widened.narrow;
  const graph::Shape& w = problem.w.shape;
  return w[1] == w[2] && problem.groups * w[1] == problem.x.shape[1] ? w[1] : 0;
}

// Outputs, and gradients of inputs.
class DepthwisePixels : public Kernel {
 public:
  DepthwisePixels(const ConvolutionProblem& problem, const DepthwiseLoops& loops)
      : loops_(loops),
        turned_(problem.direction == ConvolutionDirection::backward_data),
        bias_(problem.bias && !turned_),
        relu_(problem.relu),
        members_(members_of(problem)),
        source_((turned_ ? problem.y : problem.x).shape, loops.lanes),
        target_((turned_ ? problem.x : problem.y).shape, loops.lanes),
        kernel_{problem.w.shape[3], problem.w.shape[4]} {
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t size = axis == 0 ? target_.height : target_.width;
      const int64_t padding = problem.padding[axis];
      const int64_t stride = problem.stride[axis];
      source_stride_[axis] = turned_ ? 1 : stride;
      target_step_[axis] = turned_ ? stride : 1;
      phases_[axis] = turned_ ? data_axis(kernel_[axis], padding, stride, size)
                              : std::vector<AxisPhase>{forward_axis(kernel_[axis], padding, size)};
    }
  }

  uint64_t workspace_bytes() const override {
    return static_cast<uint64_t>(target_.blocks * kernel_floats()) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const auto* source = arguments.input<const float>(0);
    const auto* bias = bias_ ? arguments.input<const float>(2) : nullptr;
    auto* target = arguments.output<float>(0);
    auto* weights = reinterpret_cast<float*>(arguments.workspace);
    parallel_for(target_.blocks, kWeightBlocks, [&](int64_t block) {
      arrange(arguments.input<const float>(1), block, weights + block * kernel_floats());
    });
    const int64_t rows = target_.images * target_.blocks * target_.height;
    parallel_ranges(rows, 1, [&](int, int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t plane = item / target_.height;
        const int64_t block = plane % target_.blocks;
        convolve(source, plane, item % target_.height, weights + block * kernel_floats(),
                 bias_ ? bias + block * loops_.lanes : nullptr, target);
      }
    });
  }

 private:
  static constexpr int64_t kWeightBlocks = 8;  // that one thread arranges rather than two

  int64_t tap_floats() const { return members_ * loops_.lanes; }
  int64_t kernel_floats() const { return kernel_[0] * kernel_[1] * tap_floats(); }

  // A block's weights in the order in which they are read: of each phase of rows that of columns.
  void arrange(const float* weights, int64_t block, float* to) const {
    const int64_t lanes = loops_.lanes;
    const int64_t area = kernel_[0] * kernel_[1];
    for (const AxisPhase& down : phases_[0]) {
      for (const AxisPhase& across : phases_[1]) {
        for (const int64_t row : down.taps) {
          for (const int64_t tap : across.taps) {
            const float* from = weights + block * lanes * members_ * area + row * kernel_[1] + tap;
            for (int64_t member = 0; member < members_; ++member) {
              for (int64_t lane = 0; lane < lanes; ++lane) {
                const int64_t other = lane ^ member;
                const int64_t output = turned_ ? other : lane;
                const int64_t input = turned_ ? lane : other;
                *to++ = from[(output * members_ + input % members_) * area];
              }
            }
          }
        }
      }
    }
  }

  void convolve(const float* source, int64_t plane, int64_t at, const float* weights,
                const float* bias, float* target) const {
    const auto remainder = static_cast<size_t>(at % target_step_[0]);
    for (size_t i = 0; i < remainder; ++i) {
      weights += static_cast<int64_t>(phases_[0][i].taps.size()) * kernel_[1] * tap_floats();
    }
    const AxisPhase& down = phases_[0][remainder];
    const auto down_taps = static_cast<int64_t>(down.taps.size());
    const SeenRows seen(down.offset + at / target_step_[0] * source_stride_[0], down_taps,
                        source_.height);
    for (const AxisPhase& across : phases_[1]) {
      const auto taps = static_cast<int64_t>(across.taps.size());
      const TapRows rows = {source + source_.offset(plane, seen.first_row),
                            source_.row,
                            source_.width,
                            taps == 0 ? 0 : seen.count,
                            std::max<int64_t>(1, taps),
                            across.offset,
                            source_stride_[1],
                            across.count};
      loops_.convolve(rows, members_, weights + seen.first_tap * taps * tap_floats(), bias, relu_,
                      target + target_.offset(plane, at) + across.start * loops_.lanes,
                      target_step_[1] * loops_.lanes);
      weights += down_taps * taps * tap_floats();
    }
  }

  const DepthwiseLoops& loops_;
  bool turned_;
  bool bias_;
  bool relu_;
  int64_t members_;
  ChannelPlanes source_;
  ChannelPlanes target_;
  std::array<int64_t, 2> kernel_;
  std::array<int64_t, 2> source_stride_ = {};
  std::array<int64_t, 2> target_step_ = {};
  std::array<std::vector<AxisPhase>, 2> phases_;
};

// Gradients of weights: of some rows of an image, then of groups of images, then of all.
class DepthwiseWeights : public Kernel {
 public:
  DepthwiseWeights(const ConvolutionProblem& problem, const DepthwiseLoops& loops)
      : loops_(loops),
        members_(members_of(problem)),
        source_(problem.x.shape, loops.lanes),
        gradient_(problem.y.shape, loops.lanes),
        kernel_{problem.w.shape[3], problem.w.shape[4]},
        stride_{problem.stride[0], problem.stride[1]},
        padding_{problem.padding[0], problem.padding[1]},
        groups_(std::min(kImageGroups, source_.images)) {}

  uint64_t workspace_bytes() const override {
    return static_cast<uint64_t>(groups_ * source_.blocks * kernel_floats()) * sizeof(float);
  }

  void run(const KernelArguments& arguments) override {
    const auto* x = arguments.input<const float>(0);
    const auto* dy = arguments.input<const float>(1);
    auto* sums = reinterpret_cast<float*>(arguments.workspace);
    parallel_for(groups_ * source_.blocks, 1, [&](int64_t item) {
      sum_group(x, dy, item / source_.blocks, item % source_.blocks, sums + item * kernel_floats());
    });
    parallel_for(source_.blocks, 1, [&](int64_t block) {
      add_groups(sums, block, arguments.output<float>(0) + block * kernel_floats());
    });
  }

 private:
  int64_t area() const { return kernel_[0] * kernel_[1]; }
  int64_t member_floats() const { return area() * loops_.lanes; }
  int64_t kernel_floats() const { return members_ * member_floats(); }

  void sum_group(const float* x, const float* dy, int64_t group, int64_t block, float* sums) const {
    std::fill_n(sums, kernel_floats(), 0.0f);
    const int64_t rows_together = std::max<int64_t>(1, kPieceOutputs / gradient_.width);
    for (int64_t image = source_.images * group / groups_;
         image < source_.images * (group + 1) / groups_; ++image) {
      float of_rows[kMostSums * kMostLanes] = {};
      const int64_t plane = image * source_.blocks + block;
      for (int64_t at = 0; at < gradient_.height; ++at) {
        const SeenRows seen(at * stride_[0] - padding_[0], kernel_[0], source_.height);
        const TapRows rows = {x + source_.offset(plane, seen.first_row),
                              source_.row,
                              source_.width,
                              seen.count,
                              kernel_[1],
                              -padding_[1],
                              stride_[1],
                              gradient_.width};
        for (int64_t member = 0; member < members_; ++member) {
          loops_.correlate(
              rows, member, dy + gradient_.offset(plane, at),
              of_rows + member * member_floats() + seen.first_tap * kernel_[1] * loops_.lanes);
        }
        if ((at + 1) % rows_together == 0 || at + 1 == gradient_.height) {
          for (int64_t i = 0; i < kernel_floats(); ++i) {
            sums[i] += of_rows[i];
            of_rows[i] = 0;
          }
        }
      }
    }
  }

  void add_groups(const float* sums, int64_t block, float* weights) const {
    for (int64_t i = 0; i < kernel_floats(); ++i) {
      float sum = 0;
      for (int64_t group = 0; group < groups_; ++group) {
        sum += sums[(group * source_.blocks + block) * kernel_floats() + i];
      }
      const int64_t lane = i % loops_.lanes;
      const int64_t input = (lane ^ i / member_floats()) % members_;
      weights[(lane * members_ + input) * area() + i % member_floats() / loops_.lanes] = sum;
    }
  }

  static constexpr int64_t kMostLanes = 16;
  static constexpr int64_t kMostSums =
      std::max(kMostTaps * kMostTaps, kMostMembers* kMostTapsOfGroups* kMostTapsOfGroups);

  const DepthwiseLoops& loops_;
  int64_t members_;
  ChannelPlanes source_;
  ChannelPlanes gradient_;
  std::array<int64_t, 2> kernel_;
  std::array<int64_t, 2> stride_;
  std::array<int64_t, 2> padding_;
  int64_t groups_;
};

bool any_above(const graph::Shape& sizes, int64_t most) {
  return std::any_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size > most; });
}

}  // namespace

const DepthwiseLoops* depthwise_loops_here() {
  return widest_loops(depthwise_loops_avx512, depthwise_loops_avx2);
}

std::string refusal_of_depthwise(const ConvolutionProblem& problem, const DepthwiseLoops* loops) {
  if (loops == nullptr) return "there are no loops for this processor";
  const graph::Shape& w = problem.w.shape;
  const int64_t members = problem.groups < 2 ? 0 : members_of(problem);
  if (members != 1 && members != 2 && members != kMostMembers) {
    return "groups are not of 1, 2 or 4 channels that make as many";
  }
  if (problem.halves) return "bf16 is not served";
  if (problem.bias && problem.direction == ConvolutionDirection::backward_weights) {
    return "gradients of a bias are not served";
  }
  if (any_above(problem.dilation, 1)) return "only dilation 1 is served";
  const int64_t most_taps = members == 1 ? kMostTaps : kMostTapsOfGroups;
  if (any_above(problem.stride, kMostTapStrides) || any_above({w[3], w[4]}, most_taps)) {
    return fmt::format("only strides up to {} and kernels up to {} are served", kMostTapStrides,
                       most_taps);
  }
  if (problem.x.shape[1] % loops->lanes != 0) {
    return fmt::format("channels are no multiple of {}", loops->lanes);
  }
  return {};
}

std::unique_ptr<Kernel> make_depthwise_convolution(const ConvolutionProblem& problem,
                                                   const DepthwiseLoops& loops) {
  if (problem.direction == ConvolutionDirection::backward_weights) {
    return std::make_unique<DepthwiseWeights>(problem, loops);
  }
  return std::make_unique<DepthwisePixels>(problem, loops);
}

}  // namespace millrace::kernels
