#include "kernels/convolution_problem.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/half.h"
#include "kernels/convolution_tuner.h"

namespace millrace {
namespace {

constexpr double kLongRun = 0.15;  // seconds after which one timed run is enough

dnnl::algorithm to_dnnl(ConvolutionMethod method) {
  return method == ConvolutionMethod::winograd ? dnnl::algorithm::convolution_winograd
                                               : dnnl::algorithm::convolution_direct;
}

bool has_point_kernel(const ConvolutionProblem& problem) {
  const Shape& w = problem.w.shape;
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

dnnl::memory::dims less_one(const Shape& dilation) {
  dnnl::memory::dims gaps = dilation;
  for (int64_t& gap : gaps) --gap;
  return gaps;
}

dnnl::memory::desc bias_desc(const ConvolutionProblem& problem) {
  return dnnl_plain({problem.y.shape[1]}, DataType::f32);
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

// Memory with values that are neither zero nor denormal.
dnnl::memory filled(const dnnl::memory::desc& desc) {
  dnnl::memory memory(desc, dnnl_engine());
  const auto value = [](size_t i) { return 0.01f * static_cast<float>(i % 17) - 0.08f; };
  if (desc.data.data_type == dnnl_bf16) {
    auto* halves = static_cast<uint16_t*>(memory.get_data_handle());
    for (size_t i = 0; i < desc.get_size() / sizeof(uint16_t); ++i) halves[i] = to_bf16(value(i));
    return memory;
  }
  auto* values = static_cast<float*>(memory.get_data_handle());
  for (size_t i = 0; i < desc.get_size() / sizeof(float); ++i) values[i] = value(i);
  return memory;
}

}  // namespace

std::string ConvolutionProblem::key() const {
  constexpr const char* kNames[] = {"forward", "backward_data", "backward_weights"};
  return fmt::format(
      "{} x={} w={} y={} stride={} padding={} dilation={} groups={} bias={} relu={}{}",
      kNames[static_cast<size_t>(direction)], to_string(x.shape), to_string(w.shape),
      to_string(y.shape), to_string(stride), to_string(padding), to_string(dilation), groups, bias,
      relu, halves ? " bf16" : "");
}

ConvolutionProblem convolution_problem(const KernelRequest& request) {
  ConvolutionProblem problem;
  const Attributes& attributes = request.op.attributes;
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
  problem.halves = problem.x.dtype == DataType::bf16;
  if (problem.halves && problem.direction != ConvolutionDirection::backward_weights) {
    problem.w.dtype = DataType::bf16;
  }
  if (problem.groups > 1) {
    Shape& w = problem.w.shape;
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
    case ConvolutionMethod::winograd:
      return "winograd";
  }
  return "unknown";
}

std::vector<ConvolutionMethod> methods_for(const ConvolutionProblem& problem) {
  std::vector<ConvolutionMethod> methods = {ConvolutionMethod::direct};
  if (problem.halves) return methods;
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
    const auto offer = offer_convolution(problem, method, any_descs(problem), nullptr);
    return static_cast<int64_t>(offer->scratchpad.get_size()) > options.workspace_limit;
  });
  if (options.convolution == ConvolutionAlgorithm::winograd) {
    const bool possible = methods.back() == ConvolutionMethod::winograd;
    return possible ? ConvolutionMethod::winograd : ConvolutionMethod::direct;
  }
  if (methods.size() == 1 || options.tuner == nullptr) return ConvolutionMethod::direct;
  std::vector<ConvolutionTuner::Candidate> candidates;
  for (ConvolutionMethod method : methods) {
    candidates.push_back({std::string(name_of(method)), [&, method] {
                            const int before = omp_get_max_threads();
                            omp_set_num_threads(options.threads);
                            const double seconds = measure_convolution(problem, method);
                            omp_set_num_threads(before);
                            return seconds;
                          }});
  }
  return methods[options.tuner->choose(tuning_key(problem, options), candidates)];
}

double measure_convolution(const ConvolutionProblem& problem, ConvolutionMethod method) {
  const auto offer = offer_convolution(problem, method, any_descs(problem), nullptr);
  if (!offer) return std::numeric_limits<double>::infinity();
  const bool data = problem.direction == ConvolutionDirection::backward_data;
  const bool weights = problem.direction == ConvolutionDirection::backward_weights;
  std::unordered_map<int, dnnl::memory> arguments = {
      {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, filled(offer->descs.x)},
      {weights ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, filled(offer->descs.w)},
      {data || weights ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, filled(offer->descs.y)},
      {DNNL_ARG_SCRATCHPAD, dnnl::memory(offer->scratchpad, dnnl_engine())}};
  if (problem.bias) {
    arguments.emplace(weights ? DNNL_ARG_DIFF_BIAS : DNNL_ARG_BIAS, filled(offer->bias));
  }
  const dnnl::primitive primitive = offer->make();
  dnnl::stream stream(dnnl_engine());
  const auto timed = [&] {
    const auto start = std::chrono::steady_clock::now();
    primitive.execute(stream, arguments);
    stream.wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = timed();
  double best = timed();
  if (first < kLongRun) best = std::min({best, timed(), timed()});
  return best;
}

}  // namespace millrace
