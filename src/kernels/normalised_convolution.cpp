// normalised_convolution: a convolution whose results are multiplied, shifted and bent while they
// are at hand, in loops of our own that can do so; else one after the other.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/convolution_problem.h"
#include "kernels/panels/panel_convolution.h"
#include "kernels/reference/reference.h"
#include "kernels/support/batch_norm_planes.h"
#include "kernels/winograd/tile_loops.h"
#include "kernels/winograd/tiled_convolution.h"

namespace millrace::kernels::normalised_convolution {
namespace {

// Behind the image and the weights.
enum Input : size_t { kScale = 2, kBias, kMean, kVariance, kBehind };

// The convolution alone: as a request, whose operator it owns.
class Alone {
 public:
  explicit Alone(const KernelRequest& request)
      : operator_(convolution_alone(request.op)),
        request_{operator_,
                 {request.inputs[0], request.inputs[1]},
                 {request.outputs[0]},
                 request.options} {}
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  const KernelRequest& request() const { return request_; }

 private:
  const graph::Operator operator_;
  const KernelRequest request_;
};

class NormalisedConvolution : public Kernel {
 public:
  // With `joined` the convolution does all but the folding of parameters.
  NormalisedConvolution(const KernelRequest& request, std::unique_ptr<Kernel> convolution,
                        bool joined)
      : convolution_(std::move(convolution)),
        joined_(joined),
        planes_(request.outputs[0]),
        epsilon_(request.op.attributes.number("epsilon")),
        residual_(request.op.attributes.flag("residual")),
        bend_(bend_kind(request.op.attributes)) {}

  // The folded parameters and slopes, then what the convolution needs.
  uint64_t workspace_bytes() const override {
    return parameter_bytes() + convolution_->workspace_bytes();
  }

  void run(const KernelArguments& a) override {
    const int64_t padded = planes_.padded_channels();
    auto* factor = reinterpret_cast<float*>(a.workspace);
    float* offset = factor + padded;
    for (int64_t c = 0; c < padded; ++c) {
      const bool real = c < planes_.channels;
      const auto inverse =
          real ? static_cast<float>(1.0 / std::sqrt(a.input<float>(kVariance)[c] + epsilon_)) : 0;
      factor[c] = real ? a.input<float>(kScale)[c] * inverse : 0;
      offset[c] = real ? a.input<float>(kBias)[c] - a.input<float>(kMean)[c] * factor[c] : 0;
    }
    std::byte* inputs[] = {a.inputs[0], a.inputs[1], reinterpret_cast<std::byte*>(factor),
                           reinterpret_cast<std::byte*>(offset),
                           residual_ ? a.inputs[kBehind] : nullptr};
    std::byte* const workspace = a.workspace + parameter_bytes();
    convolution_->run({{inputs, joined_ ? std::size(inputs) : 2}, a.outputs, workspace, a.step});
    if (joined_) return;
    Bend bend = {bend_, offset + padded};
    if (bend.has_slopes()) {
      pad_channels(planes_, a.input<const float>(kBehind), offset + padded);
    }
    apply_group(planes_, 0, planes_.blocks, {graph::DataType::f32, a.outputs[0]},
                {graph::DataType::f32, inputs[4]}, factor, offset, bend,
                {graph::DataType::f32, a.outputs[0]});
  }

 private:
  uint64_t parameter_bytes() const {
    constexpr uint64_t kLine = 64;
    const auto bytes = static_cast<uint64_t>(planes_.padded_channels()) * 3 * sizeof(float);
    return (bytes + kLine - 1) / kLine * kLine;
  }

  std::unique_ptr<Kernel> convolution_;
  bool joined_;
  Planes planes_;
  double epsilon_;
  bool residual_;
  Bend::Kind bend_;
};

std::unique_ptr<Kernel> create_joined(const KernelRequest& request, std::string* refusal) {
  const Alone alone(request);
  ConvolutionProblem problem = convolution_problem(alone.request());
  const ConvolutionMethod method = choose_method(problem, request.options);
  const bool panels = method == ConvolutionMethod::panels;
  if (!panels && method != ConvolutionMethod::winograd_tiles) {
    *refusal = "a method is chosen that cannot normalise";
    return nullptr;
  }
  if (request.op.attributes.has("bend")) {
    *refusal = "only ReLU is served";
    return nullptr;
  }
  const TileLoops& loops = *tile_loops_here();
  const graph::Layout images = tiled_images(loops);
  const bool residual = request.op.attributes.flag("residual");
  if (request.inputs[0].layout != images || request.outputs[0].layout != images ||
      request.inputs[1].layout != tiled_weights(loops) ||
      (residual && request.inputs[kBehind].layout != images)) {
    *refusal = "images or weights are not in blocks of the vectors' length";
    return nullptr;
  }
  problem.norm = true;
  problem.residual = residual;
  problem.relu = request.op.attributes.flag("relu");
  const int threads = request.options.threads;
  return std::make_unique<NormalisedConvolution>(
      request,
      panels ? make_panel_convolution(problem, threads, *panel_loops_here())
             : make_tiled_convolution(problem, threads, loops),
      true);
}

bool can_be_normalised(const graph::Layout& images) {
  const int64_t block = images.channel_block();
  return block == 1 || block == 8 || block == 16;
}

std::unique_ptr<Kernel> create_in_turn(const KernelRequest& request, std::string* refusal) {
  const graph::Layout& images = request.outputs[0].layout;
  const bool same =
      !request.op.attributes.flag("residual") || request.inputs[kBehind].layout == images;
  if (!same || !can_be_normalised(images)) {
    *refusal = "results are neither plain nor have channels in blocks of 8 or 16";
    return nullptr;
  }
  const Alone alone(request);
  try {
    return std::make_unique<NormalisedConvolution>(request, make_kernel(alone.request()), false);
  } catch (const InputError& error) {
    *refusal = marked_text(error);
    return nullptr;
  }
}

// As the convolution wants them, where a norm takes that; a residual as the result.
LayoutWish layouts(const KernelRequest& request) {
  const Alone alone(request);
  LayoutWish wish = layouts_of(alone.request());
  if (!can_be_normalised(wish.outputs[0])) wish = {std::vector<graph::Layout>(2), {{}}};
  wish.inputs.resize(request.inputs.size());
  if (request.op.attributes.flag("residual")) wish.inputs[kBehind] = wish.outputs[0];
  return wish;
}

}  // namespace

std::vector<KernelFamily> kernels() {
  return {{"normalised_convolution",
           {{"joined", create_joined},
            {"in turn", create_in_turn},
            {"reference", reference_normalised_convolution}},
           layouts}};
}

}  // namespace millrace::kernels::normalised_convolution
