// A convolution as oneDNN sees it, in any of its three directions.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "kernels/support/dnnl_support.h"

namespace millrace {

enum class ConvolutionDirection : uint8_t { forward, backward_data, backward_weights };

// Everything that determines the work, taken from an operator and its tensors' types.
struct ConvolutionProblem {
  ConvolutionDirection direction = ConvolutionDirection::forward;
  TensorType x;
  TensorType w;  // (groups,) out, in, height, width
  TensorType y;
  Shape stride;
  Shape padding;
  Shape dilation;
  int64_t groups = 1;
  bool bias = false;
  bool relu = false;

  // A stable text of all of the above.
  std::string key() const;
};

ConvolutionProblem convolution_problem(const KernelRequest& request);

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

// Empty if oneDNN has no such algorithm for the problem; `refusal` says why.
std::optional<ConvolutionOffer> offer_convolution(const ConvolutionProblem& problem,
                                                  ConvolutionAlgorithm algorithm,
                                                  const ConvolutionDescs& descs,
                                                  std::string* refusal);

// Direct or Winograd, as the options say; `automatic` asks the tuner, which may measure.
ConvolutionAlgorithm choose_algorithm(const ConvolutionProblem& problem,
                                      const KernelOptions& options);

// Seconds of the fastest of a few runs on data of its own, in the layouts oneDNN likes best;
// infinity if the algorithm cannot serve the problem.
double measure_convolution(const ConvolutionProblem& problem, ConvolutionAlgorithm algorithm);

}  // namespace millrace
