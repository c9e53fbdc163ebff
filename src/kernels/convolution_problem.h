// A convolution as oneDNN sees it, in any of its three directions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/support/dnnl_support.h"
#include "kernels/support/ending.h"
#include "kernels/support/group_blocks.h"

namespace millrace::kernels {

// How a convolution can be done. `direct`, `direct_general` and `winograd` are oneDNN's;
// `direct_general` passes over its special code for 1x1 kernels, which is not always the faster
// one. `winograd_in_f32` serves images of bf16, for which there is no Winograd, by float32 copies
// of a part of the batch at a time. `winograd_tiles` is Winograd's method in loops of our own
// (winograd/tiled_convolution.h), `panels` products of matrices in such
// (panels/panel_convolution.h), `depthwise` loops over the taps of channels that have kernels of
// their own (depthwise/depthwise_convolution.h).
enum class ConvolutionMethod : uint8_t {
  direct,
  direct_general,
  panels,
  depthwise,
  winograd_tiles,
  winograd,
  winograd_in_f32
};

std::string_view name_of(ConvolutionMethod method);

enum class ConvolutionDirection : uint8_t { forward, backward_data, backward_weights };

// Everything that determines the work, taken from an operator and its tensors' types.
struct ConvolutionProblem {
  ConvolutionDirection direction = ConvolutionDirection::forward;
  graph::TensorType x;
  graph::TensorType w;  // (groups,) out, in, height, width
  graph::TensorType y;
  graph::Shape stride;
  graph::Shape padding;
  graph::Shape dilation;
  int64_t groups = 1;   // of `w`
  GroupBlocks widened;  // narrow is above 0 where `w` stands for more, smaller groups
  bool halves = false;  // images are bf16; weights, float32 for everybody else, are read as bf16
  bool bias = false;
  bool relu = false;

  // A stable text of all of the above.
  std::string key() const;

  // Own loops may normalise what they make, forward, and add a residual; such have no bias.
  bool norm = false;
  bool residual = false;

  EndingInputs ending() const {
    const bool forward = direction == ConvolutionDirection::forward;
    return forward ? EndingInputs{bias, norm, residual, relu} : EndingInputs{};
  }
};

ConvolutionProblem convolution_problem(const KernelRequest& request);

// The convolution of an operator that does more.
graph::Operator convolution_alone(const graph::Operator& op);

// Descriptors of the three tensors; oneDNN may choose those that are left open ("any").
struct ConvolutionDescs {
  dnnl::memory::desc x;
  dnnl::memory::desc w;
  dnnl::memory::desc y;
};

ConvolutionDescs any_descs(const ConvolutionProblem& problem);

// What oneDNN offers for a problem.
struct ConvolutionOffer {
  ConvolutionDescs descs;
  dnnl::memory::desc bias;
  dnnl::memory::desc scratchpad;
  std::string implementation;
  std::function<dnnl::primitive()> make;
};

// Empty if oneDNN has no such method for the problem; `refusal` says why. Not for panels and
// winograd_tiles, nor for winograd_in_f32: that is winograd for part_in_f32.
std::optional<ConvolutionOffer> offer_convolution(const ConvolutionProblem& problem,
                                                  ConvolutionMethod method,
                                                  const ConvolutionDescs& descs,
                                                  std::string* refusal);

// What winograd_in_f32 makes of a problem in bf16: in how many equal parts of the batch, so that
// the copies of one stay small, and the float32 problem of each.
int64_t parts_in_f32(const ConvolutionProblem& problem);
ConvolutionProblem part_in_f32(const ConvolutionProblem& problem);

// The methods that serve the problem, `direct` first.
std::vector<ConvolutionMethod> methods_for(const ConvolutionProblem& problem);

// Under which a choice for the problem is remembered: it, the threads and the instruction set.
std::string tuning_key(const ConvolutionProblem& problem, const KernelOptions& options);

// The method that the options ask for; `automatic` asks their ConvolutionChoices.
ConvolutionMethod choose_method(const ConvolutionProblem& problem, const KernelOptions& options);

// Seconds of the fastest of a few runs of each method, which take turns, on data of their own, in
// the layouts oneDNN likes best, with the conversions that winograd_in_f32 needs; infinity if a
// method cannot serve the problem. Each runs three times, and more often until `enough` seconds are
// spent. Computed by the team of the calling thread.
std::vector<double> measure_convolution(const ConvolutionProblem& problem,
                                        const std::vector<ConvolutionMethod>& methods,
                                        double enough = 0.3);

}  // namespace millrace::kernels
