// convolution and its two gradients, by oneDNN or own loops: the method that was chosen, else
// direct.
#include "kernels/convolution_problem.h"
#include "kernels/depthwise/depthwise_convolution.h"
#include "kernels/panels/panel_convolution.h"
#include "kernels/reference/reference.h"
#include "kernels/support/widened.h"
#include "kernels/winograd/tile_loops.h"
#include "kernels/winograd/tiled_convolution.h"

namespace millrace::kernels::convolution {
namespace {

constexpr uint64_t kAlignment = 64;

// Which arguments of the operator the three tensors are.
struct Roles {
  DnnlArgument x;
  DnnlArgument w;
  DnnlArgument y;
};

Roles roles_of(ConvolutionDirection direction, const ConvolutionDescs& descs) {
  switch (direction) {
    case ConvolutionDirection::backward_data:
      return {from_output(DNNL_ARG_DIFF_SRC, 0, descs.x), from_input(DNNL_ARG_WEIGHTS, 1, descs.w),
              from_input(DNNL_ARG_DIFF_DST, 0, descs.y)};
    case ConvolutionDirection::backward_weights:
      return {from_input(DNNL_ARG_SRC, 0, descs.x), from_output(DNNL_ARG_DIFF_WEIGHTS, 0, descs.w),
              from_input(DNNL_ARG_DIFF_DST, 1, descs.y)};
    case ConvolutionDirection::forward:
      break;
  }
  return {from_input(DNNL_ARG_SRC, 0, descs.x), from_input(DNNL_ARG_WEIGHTS, 1, descs.w),
          from_output(DNNL_ARG_DST, 0, descs.y)};
}

std::unique_ptr<DnnlKernel> kernel_of(const ConvolutionProblem& problem,
                                      const ConvolutionOffer& offer) {
  const Roles roles = roles_of(problem.direction, offer.descs);
  std::vector<DnnlArgument> arguments = {roles.x, roles.w, roles.y};
  if (problem.bias && problem.direction == ConvolutionDirection::forward) {
    arguments.push_back(from_input(DNNL_ARG_BIAS, 2, offer.bias));
  } else if (problem.bias) {
    arguments.push_back(from_output(DNNL_ARG_DIFF_BIAS, 1, offer.bias));
  }
  return std::make_unique<DnnlKernel>(offer.make(), arguments, offer.scratchpad);
}

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Whether the weights in the graph are not those of the primitive.
bool stages_weights(const ConvolutionProblem& problem) {
  return problem.groups > 1 ||
         (problem.halves && problem.direction != ConvolutionDirection::backward_weights);
}

// Grouped weights stay plain in the graph, and weights of convolutions in bf16 stay float32; this
// puts them into the order and type that the primitive wants, in the workspace, around each run,
// and small groups into wider ones. `outside` are the weights in the graph.
class StagedConvolution : public Kernel {
 public:
  StagedConvolution(const ConvolutionProblem& problem, const ConvolutionOffer& offer,
                    const dnnl::memory::desc& outside)
      : convolution_(kernel_of(problem, offer)),
        weights_are_output_(problem.direction == ConvolutionDirection::backward_weights),
        widened_(problem.widened) {
    const auto& from = weights_are_output_ ? offer.descs.w : outside;
    const auto& to = weights_are_output_ ? outside : offer.descs.w;
    const dnnl::reorder::primitive_desc description(dnnl_engine(), from, dnnl_engine(), to);
    reorder_ = std::make_unique<DnnlKernel>(
        dnnl::reorder(description),
        std::vector{from_input(DNNL_ARG_FROM, 0, from), from_output(DNNL_ARG_TO, 0, to)},
        dnnl::memory::desc());
    staged_ = aligned(convolution_->workspace_bytes());
    wide_ = staged_ + aligned(offer.descs.w.get_size());
    bytes_ = wide_ + (widened_.narrow > 0 ? outside.get_size() : 0);
  }

  uint64_t workspace_bytes() const override { return bytes_; }

  void run(const KernelArguments& arguments) override {
    std::byte* staged = arguments.workspace + staged_;
    std::byte* wide = arguments.workspace + wide_;
    if (weights_are_output_) {
      std::byte* outputs[2] = {staged,
                               arguments.outputs.size() > 1 ? arguments.outputs[1] : nullptr};
      convolution_->run({arguments.inputs,
                         {outputs, arguments.outputs.size()},
                         arguments.workspace,
                         arguments.step});
      std::byte* plain = widened_.narrow > 0 ? wide : arguments.outputs[0];
      reorder_->run({{&staged, 1}, {&plain, 1}, nullptr, arguments.step});
      if (widened_.narrow > 0) {
        narrow(widened_, reinterpret_cast<const float*>(wide), arguments.output<float>(0));
      }
      return;
    }
    std::byte* weights = arguments.inputs[1];
    if (widened_.narrow > 0) {
      widen(widened_, arguments.input<float>(1), reinterpret_cast<float*>(wide));
      weights = wide;
    }
    reorder_->run({{&weights, 1}, {&staged, 1}, nullptr, arguments.step});
    std::byte* inputs[3] = {arguments.inputs[0], staged,
                            arguments.inputs.size() > 2 ? arguments.inputs[2] : nullptr};
    convolution_->run({{inputs, arguments.inputs.size()},
                       arguments.outputs,
                       arguments.workspace,
                       arguments.step});
  }

 private:
  std::unique_ptr<DnnlKernel> convolution_;
  std::unique_ptr<DnnlKernel> reorder_;
  bool weights_are_output_;
  GroupBlocks widened_;
  uint64_t staged_ = 0;
  uint64_t wide_ = 0;
  uint64_t bytes_ = 0;
};

// The tensors' layouts as the request has them; staged weights are left to oneDNN.
ConvolutionDescs requested_descs(const ConvolutionProblem& problem, const KernelRequest& request) {
  const Roles roles = roles_of(problem.direction, {});
  const auto desc_of = [&](const DnnlArgument& role) {
    const bool input = role.source == DnnlArgument::Source::input;
    return dnnl_desc((input ? request.inputs : request.outputs)[role.index]);
  };
  return {desc_of(roles.x), stages_weights(problem) ? dnnl_any(problem.w) : desc_of(roles.w),
          desc_of(roles.y)};
}

const TensorSpec& weights_of(const ConvolutionProblem& problem, const KernelRequest& request) {
  const DnnlArgument role = roles_of(problem.direction, {}).w;
  const bool input = role.source == DnnlArgument::Source::input;
  return (input ? request.inputs : request.outputs)[role.index];
}

template <ConvolutionMethod method>
std::unique_ptr<Kernel> create(const KernelRequest& request, std::string* refusal) {
  const ConvolutionProblem problem = convolution_problem(request);
  if (problem.groups > 1 && !weights_of(problem, request).layout.is_plain()) {
    *refusal = "grouped weights are not plain";
    return nullptr;
  }
  if (method != ConvolutionMethod::direct && choose_method(problem, request.options) != method) {
    *refusal = "another method is chosen for this shape";
    return nullptr;
  }
  const auto offer = offer_convolution(problem, method, requested_descs(problem, request), refusal);
  if (!offer) return nullptr;
  if (!stages_weights(problem)) return kernel_of(problem, *offer);
  const auto outside = problem.groups > 1 ? dnnl_plain(problem.w.shape, graph::DataType::f32)
                                          : dnnl_desc(weights_of(problem, request));
  return std::make_unique<StagedConvolution>(problem, *offer, outside);
}

constexpr KernelImplementation kWinograd = {"winograd", create<ConvolutionMethod::winograd>};

KernelOptions winograd_options(KernelOptions options) {
  options.convolution = ConvolutionAlgorithm::winograd;
  options.workspace_limit = 0;
  return options;
}

std::unique_ptr<Kernel> create_in_f32(const KernelRequest& request, std::string* refusal) {
  const ConvolutionProblem problem = convolution_problem(request);
  if (choose_method(problem, request.options) != ConvolutionMethod::winograd_in_f32) {
    *refusal = "another method is chosen for this shape";
    return nullptr;
  }
  const KernelOptions options = winograd_options(request.options);
  return make_widened(kWinograd, {request.op, request.inputs, request.outputs, options}, refusal,
                      parts_in_f32(problem));
}

// The layouts of the operator's images and weights that loops of our own work with: all of them
// take the same, but for weights of groups, which are plain.
LayoutWish layouts_of_loops(const KernelRequest& request, const ConvolutionProblem& problem) {
  LayoutWish wish = {std::vector<graph::Layout>(request.inputs.size()),
                     std::vector<graph::Layout>(request.outputs.size())};
  const TileLoops& loops = *tile_loops_here();
  const Roles roles = roles_of(problem.direction, {});
  const auto place = [&](const DnnlArgument& role) -> graph::Layout& {
    return (role.source == DnnlArgument::Source::input ? wish.inputs : wish.outputs)[role.index];
  };
  place(roles.x) = place(roles.y) = tiled_images(loops);
  if (problem.groups == 1) place(roles.w) = tiled_weights(loops);
  return wish;
}

bool lies_so(const std::vector<TensorSpec>& tensors, const std::vector<graph::Layout>& layouts) {
  return std::equal(tensors.begin(), tensors.end(), layouts.begin(), layouts.end(),
                    [](const TensorSpec& tensor, const graph::Layout& layout) {
                      return tensor.layout == layout;
                    });
}

template <ConvolutionMethod method>
std::unique_ptr<Kernel> create_in_loops(const KernelRequest& request, std::string* refusal) {
  const ConvolutionProblem problem = convolution_problem(request);
  if (choose_method(problem, request.options) != method) {
    *refusal = "another method is chosen for this shape";
    return nullptr;
  }
  const LayoutWish wish = layouts_of_loops(request, problem);
  if (!lies_so(request.inputs, wish.inputs) || !lies_so(request.outputs, wish.outputs)) {
    *refusal = "images or weights are not in blocks of the vectors' length";
    return nullptr;
  }
  if (method == ConvolutionMethod::panels) {
    return make_panel_convolution(problem, request.options.threads, *panel_loops_here());
  }
  if (method == ConvolutionMethod::depthwise) {
    return make_depthwise_convolution(problem, *depthwise_loops_here());
  }
  return make_tiled_convolution(problem, request.options.threads, *tile_loops_here());
}

// How weights that are converted anyway should lie: as the primitive of their gradient, which is
// not, makes it.
graph::Layout layout_of_gradient(ConvolutionProblem problem) {
  problem.direction = ConvolutionDirection::backward_weights;
  problem.w.dtype = graph::DataType::f32;
  problem.relu = false;
  const auto offer =
      offer_convolution(problem, ConvolutionMethod::direct, any_descs(problem), nullptr);
  if (!offer) return {};
  return layout_from(offer->descs.w).value_or(graph::Layout());
}

// The forward pass is the first to say; afterwards they stay as they are.
graph::Layout wish_for_weights(const ConvolutionProblem& problem, const KernelRequest& request) {
  if (problem.direction == ConvolutionDirection::forward) return layout_of_gradient(problem);
  return weights_of(problem, request).layout;
}

// What oneDNN likes best; where the data already lies another way that the same implementation
// takes as well, that stays.
LayoutWish layouts(const KernelRequest& request) {
  LayoutWish wish = {std::vector<graph::Layout>(request.inputs.size()),
                     std::vector<graph::Layout>(request.outputs.size())};
  const ConvolutionProblem problem = convolution_problem(request);
  const ConvolutionMethod method = choose_method(problem, request.options);
  if (method == ConvolutionMethod::winograd_in_f32) {
    const KernelOptions options = winograd_options(request.options);
    return layouts(widened_request({request.op, request.inputs, request.outputs, options},
                                   parts_in_f32(problem)));
  }
  if (method == ConvolutionMethod::winograd_tiles || method == ConvolutionMethod::panels ||
      method == ConvolutionMethod::depthwise) {
    return layouts_of_loops(request, problem);
  }
  auto offer = offer_convolution(problem, method, any_descs(problem), nullptr);
  if (!offer && problem.halves) return layouts(widened_request(request));
  if (!offer) return wish;
  if (problem.direction != ConvolutionDirection::forward) {
    ConvolutionDescs present = any_descs(problem);
    const Roles roles = roles_of(problem.direction, {});
    if (roles.x.source == DnnlArgument::Source::input) {
      present.x = dnnl_desc(request.inputs[roles.x.index]);
    }
    present.y = dnnl_desc(request.inputs[roles.y.index]);
    const auto kept = offer_convolution(problem, method, present, nullptr);
    if (kept && kept->implementation == offer->implementation) offer = kept;
  }
  const Roles roles = roles_of(problem.direction, offer->descs);
  for (const DnnlArgument& role : {roles.x, roles.w, roles.y}) {
    if (stages_weights(problem) && role.argument == roles.w.argument) continue;
    const bool input = role.source == DnnlArgument::Source::input;
    (input ? wish.inputs : wish.outputs)[role.index] =
        layout_from(role.desc).value_or(graph::Layout());
  }
  if (problem.groups == 1 && stages_weights(problem)) {
    wish.inputs[roles.w.index] = wish_for_weights(problem, request);
  }
  return wish;
}

}  // namespace

std::vector<KernelFamily> kernels() {
  const KernelImplementation in_f32 = {"winograd in f32", create_in_f32, true};
  const KernelImplementation tiles = {"winograd tiles",
                                      create_in_loops<ConvolutionMethod::winograd_tiles>};
  const KernelImplementation panels = {"panels", create_in_loops<ConvolutionMethod::panels>};
  const KernelImplementation depthwise = {"depthwise",
                                          create_in_loops<ConvolutionMethod::depthwise>};
  const KernelImplementation general = {"direct_general",
                                        create<ConvolutionMethod::direct_general>};
  const KernelImplementation direct = {"direct", create<ConvolutionMethod::direct>, true};
  return {
      {"convolution",
       {in_f32, kWinograd, tiles, panels, depthwise, direct, {"reference", reference_convolution}},
       layouts},
      {"convolution_backward_data",
       {in_f32,
        kWinograd,
        tiles,
        panels,
        depthwise,
        general,
        direct,
        {"reference", reference_convolution_backward_data}},
       layouts},
      {"convolution_backward_weights",
       {in_f32,
        kWinograd,
        tiles,
        panels,
        depthwise,
        general,
        direct,
        {"reference", reference_convolution_backward_weights}},
       layouts}};
}

}  // namespace millrace::kernels::convolution
