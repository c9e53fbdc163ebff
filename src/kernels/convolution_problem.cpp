#include "kernels/convolution_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kernels/convolution_choices.h"
#include "kernels/depthwise/depthwise_convolution.h"
#include "kernels/panels/panel_convolution.h"
#include "kernels/winograd/tiled_convolution.h"

namespace millrace::kernels {
namespace {

// Bytes of float32 copies that winograd_in_f32 holds at a time: enough for the deep layers' weights
// to be transformed seldom, little beside the activations.
constexpr uint64_t kCopies = uint64_t{48} << 20;

dnnl::algorithm to_dnnl(ConvolutionMethod method) {
  return method == ConvolutionMethod::winograd ? dnnl::algorithm::convolution_winograd
                                               : dnnl::algorithm::convolution_direct;
}

bool has_point_kernel(const ConvolutionProblem& problem) {
  const graph::Shape& w = problem.w.shape;
  return w[w.size() - 1] == 1 && w[w.size() - 2] == 1;
}

// Goes on to the general code where the method asks for it. The operation's description must
// still be alive.
template <typename Description>
void pass_over_special(ConvolutionMethod method, Description& chosen) {
  if (method != ConvolutionMethod::direct_general) return;
  while (std::string_view(chosen.impl_info_str()).starts_with("jit_1x1")) {
    if (!chosen.next_impl()) break;
  }
  if (!std::string_view(chosen.impl_info_str()).starts_with("jit:avx512")) {
    throw dnnl::error(dnnl_unimplemented, "no general code of the same instruction set");
  }
}

dnnl::memory::dims less_one(const graph::Shape& dilation) {
  dnnl::memory::dims gaps = dilation;
  for (int64_t& gap : gaps) --gap;
  return gaps;
}

dnnl::memory::desc bias_desc(const ConvolutionProblem& problem) {
  return dnnl_plain({problem.y.shape[1]}, graph::DataType::f32);
}

dnnl::convolution_forward::primitive_desc forward_desc(const ConvolutionProblem& problem,
                                                       dnnl::algorithm algorithm,
                                                       const ConvolutionDescs& descs, bool bias,
                                                       bool relu) {
  const auto kind = dnnl::prop_kind::forward_training;
  const auto gaps = less_one(problem.dilation);
  const auto description =
      bias
          ? dnnl::convolution_forward::desc(kind, algorithm, descs.x, descs.w, bias_desc(problem),
                                            descs.y, problem.stride, gaps, problem.padding,
                                            problem.padding)
          : dnnl::convolution_forward::desc(kind, algorithm, descs.x, descs.w, descs.y,
                                            problem.stride, gaps, problem.padding, problem.padding);
  return {description, dnnl_attributes(relu), dnnl_engine()};
}

// What the forward pass of a gradient's convolution would be; its weights have the images' type.
dnnl::convolution_forward::primitive_desc hint_for(ConvolutionProblem problem,
                                                   dnnl::algorithm algorithm) {
  problem.w.dtype = problem.x.dtype;
  return forward_desc(problem, algorithm, any_descs(problem), false, false);
}

ConvolutionOffer offer_forward(const ConvolutionProblem& problem, dnnl::algorithm algorithm,
                               const ConvolutionDescs& descs) {
  const auto chosen = forward_desc(problem, algorithm, descs, problem.bias, problem.relu);
  return {{chosen.src_desc(), chosen.weights_desc(), chosen.dst_desc()},
          bias_desc(problem),
          chosen.scratchpad_desc(),
          chosen.impl_info_str(),
          [chosen] { return dnnl::convolution_forward(chosen); }};
}

ConvolutionOffer offer_backward_data(const ConvolutionProblem& problem, ConvolutionMethod method,
                                     const ConvolutionDescs& descs) {
  const dnnl::algorithm algorithm = to_dnnl(method);
  const auto hint = hint_for(problem, algorithm);
  const dnnl::convolution_backward_data::desc description(
      algorithm, descs.x, descs.w, descs.y, problem.stride, less_one(problem.dilation),
      problem.padding, problem.padding);
  dnnl::convolution_backward_data::primitive_desc chosen(description, dnnl_attributes(),
                                                         dnnl_engine(), hint);
  pass_over_special(method, chosen);
  return {{chosen.diff_src_desc(), chosen.weights_desc(), chosen.diff_dst_desc()},
          {},
          chosen.scratchpad_desc(),
          chosen.impl_info_str(),
          [chosen] { return dnnl::convolution_backward_data(chosen); }};
}

ConvolutionOffer offer_backward_weights(const ConvolutionProblem& problem, ConvolutionMethod method,
                                        const ConvolutionDescs& descs) {
  const dnnl::algorithm algorithm = to_dnnl(method);
  const auto hint = hint_for(problem, algorithm);
  const auto gaps = less_one(problem.dilation);
  const auto description =
      problem.bias ? dnnl::convolution_backward_weights::desc(
                         algorithm, descs.x, descs.w, bias_desc(problem), descs.y, problem.stride,
                         gaps, problem.padding, problem.padding)
                   : dnnl::convolution_backward_weights::desc(algorithm, descs.x, descs.w, descs.y,
                                                              problem.stride, gaps, problem.padding,
                                                              problem.padding);
  dnnl::convolution_backward_weights::primitive_desc chosen(description, dnnl_attributes(),
                                                            dnnl_engine(), hint);
  pass_over_special(method, chosen);
  return {{chosen.src_desc(), chosen.diff_weights_desc(), chosen.diff_dst_desc()},
          bias_desc(problem),
          chosen.scratchpad_desc(),
          chosen.impl_info_str(),
          [chosen] { return dnnl::convolution_backward_weights(chosen); }};
}

ConvolutionOffer any_offer(const ConvolutionProblem& problem, ConvolutionMethod method,
                           const ConvolutionDescs& descs) {
  switch (problem.direction) {
    case ConvolutionDirection::backward_data:
      return offer_backward_data(problem, method, descs);
    case ConvolutionDirection::backward_weights:
      return offer_backward_weights(problem, method, descs);
    case ConvolutionDirection::forward:
      break;
  }
  return offer_forward(problem, to_dnnl(method), descs);
}

uint64_t float_bytes(const graph::TensorType& type) {
  return static_cast<uint64_t>(type.elements()) * sizeof(float);
}

// What a method takes beside the tensors.
uint64_t workspace_of(const ConvolutionProblem& problem, ConvolutionMethod method, int threads) {
  if (method == ConvolutionMethod::winograd_tiles) {
    return make_tiled_convolution(problem, threads, *tile_loops_here())->workspace_bytes();
  }
  if (method == ConvolutionMethod::panels) {
    return make_panel_convolution(problem, threads, *panel_loops_here())->workspace_bytes();
  }
  if (method == ConvolutionMethod::depthwise) {
    return make_depthwise_convolution(problem, *depthwise_loops_here())->workspace_bytes();
  }
  if (method != ConvolutionMethod::winograd_in_f32) {
    return offer_convolution(problem, method, any_descs(problem), nullptr)->scratchpad.get_size();
  }
  const ConvolutionProblem part = part_in_f32(problem);
  const uint64_t copies = float_bytes(part.x) + float_bytes(part.y);
  const bool sums =
      problem.direction == ConvolutionDirection::backward_weights && parts_in_f32(problem) > 1;
  return workspace_of(part, ConvolutionMethod::winograd, threads) + copies +
         (sums ? float_bytes(part.w) : 0);
}

}  // namespace

std::string ConvolutionProblem::key() const {
  constexpr const char* kNames[] = {"forward", "backward_data", "backward_weights"};
  return fmt::format(
      "{} x={} w={} y={} stride={} padding={} dilation={} groups={}{} bias={} relu={}{}",
      kNames[static_cast<size_t>(direction)], graph::to_string(x.shape), graph::to_string(w.shape),
      graph::to_string(y.shape), graph::to_string(stride), graph::to_string(padding),
      graph::to_string(dilation), groups,
      widened.narrow > 0 ? fmt::format(" of {}", widened.narrow) : std::string(), bias, relu,
      halves ? " bf16" : "");
}

ConvolutionProblem convolution_problem(const KernelRequest& request) {
  ConvolutionProblem problem;
  const graph::Attributes& attributes = request.op.attributes;
  problem.stride = attributes.integers("stride");
  problem.padding = attributes.integers("padding");
  problem.dilation = attributes.integers("dilation");
  problem.groups = attributes.integer("groups");
  if (request.op.type == "convolution") {
    problem.x = request.inputs[0].type;
    problem.w = request.inputs[1].type;
    problem.y = request.outputs[0].type;
    problem.bias = request.inputs.size() > 2;
    problem.relu = attributes.flag("relu");
  } else if (request.op.type == "convolution_backward_data") {
    problem.direction = ConvolutionDirection::backward_data;
    problem.x = request.outputs[0].type;
    problem.w = request.inputs[1].type;
    problem.y = request.inputs[0].type;
  } else {
    problem.direction = ConvolutionDirection::backward_weights;
    problem.x = request.inputs[0].type;
    problem.w = request.outputs[0].type;
    problem.y = request.inputs[1].type;
    problem.bias = attributes.flag("bias");
  }
  problem.halves = problem.x.dtype == graph::DataType::bf16;
  if (problem.halves && problem.direction != ConvolutionDirection::backward_weights) {
    problem.w.dtype = graph::DataType::bf16;
  }
  if (problem.groups > 1) {
    graph::Shape& w = problem.w.shape;
    const int64_t channels = w[0];
    const int64_t wide = widened_group(channels, w[1], channels / problem.groups);
    if (wide > 0) {
      problem.widened = {channels, w[1], wide, w[2] * w[3]};
      problem.groups = channels / wide;
      w[1] = wide;
    }
    w[0] /= problem.groups;
    w.insert(w.begin(), problem.groups);
  }
  return problem;
}

graph::Operator convolution_alone(const graph::Operator& op) {
  graph::Operator alone;
  alone.type = "convolution";
  alone.name = op.name;
  for (const char* name : {"stride", "padding", "dilation"}) {
    alone.attributes.set(name, op.attributes.integers(name));
  }
  alone.attributes.set("groups", op.attributes.integer("groups"));
  return alone;
}

ConvolutionDescs any_descs(const ConvolutionProblem& problem) {
  return {dnnl_any(problem.x), dnnl_any(problem.w), dnnl_any(problem.y)};
}

std::optional<ConvolutionOffer> offer_convolution(const ConvolutionProblem& problem,
                                                  ConvolutionMethod method,
                                                  const ConvolutionDescs& descs,
                                                  std::string* refusal) {
  try {
    ConvolutionOffer offer = any_offer(problem, method, descs);
    // In float32 the same shape may have fast code.
    if (!problem.halves || offer.implementation.find("ref") == std::string::npos) return offer;
    if (refusal != nullptr) *refusal = "only reference code takes bf16";
  } catch (const dnnl::error& error) {
    if (refusal != nullptr) *refusal = error.what();
  }
  return std::nullopt;
}

std::string_view name_of(ConvolutionMethod method) {
  switch (method) {
    case ConvolutionMethod::direct:
      return "direct";
    case ConvolutionMethod::direct_general:
      return "direct_general";
    case ConvolutionMethod::panels:
      return "panels";
    case ConvolutionMethod::depthwise:
      return "depthwise";
    case ConvolutionMethod::winograd_tiles:
      return "winograd_tiles";
    case ConvolutionMethod::winograd:
      return "winograd";
    case ConvolutionMethod::winograd_in_f32:
      return "winograd_in_f32";
  }
  return "unknown";
}

int64_t parts_in_f32(const ConvolutionProblem& problem) {
  const int64_t samples = problem.x.shape[0];
  const uint64_t bytes = float_bytes(problem.x) + float_bytes(problem.y);
  for (int64_t parts = 1; parts < samples; ++parts) {
    if (samples % parts == 0 && bytes / static_cast<uint64_t>(parts) <= kCopies) return parts;
  }
  return std::max<int64_t>(samples, 1);
}

ConvolutionProblem part_in_f32(const ConvolutionProblem& problem) {
  ConvolutionProblem part = problem;
  part.halves = false;
  for (graph::TensorType* type : {&part.x, &part.w, &part.y}) type->dtype = graph::DataType::f32;
  for (graph::TensorType* type : {&part.x, &part.y}) type->shape[0] /= parts_in_f32(problem);
  return part;
}

std::vector<ConvolutionMethod> methods_for(const ConvolutionProblem& problem) {
  std::vector<ConvolutionMethod> methods = {ConvolutionMethod::direct};
  if (problem.halves) {
    const bool possible = problem.groups == 1 &&
                          methods_for(part_in_f32(problem)).back() == ConvolutionMethod::winograd;
    if (possible) methods.push_back(ConvolutionMethod::winograd_in_f32);
    return methods;
  }
  if (refusal_of_depthwise(problem, depthwise_loops_here()).empty()) {
    methods.push_back(ConvolutionMethod::depthwise);
    return methods;
  }
  if (refusal_of_panels(problem, panel_loops_here()).empty()) {
    methods.push_back(ConvolutionMethod::panels);
  }
  if (refusal_of_tiles(problem, tile_loops_here()).empty()) {
    methods.push_back(ConvolutionMethod::winograd_tiles);
  }
  const bool backward = problem.direction != ConvolutionDirection::forward;
  const auto other = has_point_kernel(problem) && backward ? ConvolutionMethod::direct_general
                                                           : ConvolutionMethod::winograd;
  if (offer_convolution(problem, other, any_descs(problem), nullptr)) methods.push_back(other);
  return methods;
}

std::string tuning_key(const ConvolutionProblem& problem, const KernelOptions& options) {
  return fmt::format("{} threads={} isa={}", problem.key(), options.threads,
                     static_cast<int>(dnnl::get_effective_cpu_isa()));
}

ConvolutionMethod choose_method(const ConvolutionProblem& problem, const KernelOptions& options) {
  if (options.convolution == ConvolutionAlgorithm::direct) return ConvolutionMethod::direct;
  std::vector<ConvolutionMethod> methods = methods_for(problem);
  std::erase_if(methods, [&](ConvolutionMethod method) {
    if (method == ConvolutionMethod::direct || options.workspace_limit <= 0) return false;
    return workspace_of(problem, method, options.threads) >
           static_cast<uint64_t>(options.workspace_limit);
  });
  if (options.convolution == ConvolutionAlgorithm::winograd) {
    const ConvolutionMethod last = methods.back();
    const bool winograd = last == ConvolutionMethod::winograd_tiles ||
                          last == ConvolutionMethod::winograd ||
                          last == ConvolutionMethod::winograd_in_f32;
    return winograd ? last : ConvolutionMethod::direct;
  }
  if (methods.size() == 1 || options.choices == nullptr) return ConvolutionMethod::direct;
  return options.choices->choose(problem, options, methods);
}

}  // namespace millrace::kernels
