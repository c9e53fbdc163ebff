// Depthwise convolutions, each of whose channels has a kernel of its own, and such of small groups
// of channels, in loops of our own (row_loops.h). Sums do not depend on the number of threads.
#pragma once

#include <memory>
#include <string>

#include "kernels/convolution_problem.h"

namespace millrace::kernels {

struct DepthwiseLoops;

// The fastest loops that the processor has and oneDNN may use; null where there are none.
const DepthwiseLoops* depthwise_loops_here();

// Empty if the loops serve the problem, else why they do not. Images have to lie in blocks of the
// loops' lanes, weights plain.
std::string refusal_of_depthwise(const ConvolutionProblem& problem, const DepthwiseLoops* loops);

// A kernel for the problem's operator. The loops serve the problem and outlive the kernel.
std::unique_ptr<Kernel> make_depthwise_convolution(const ConvolutionProblem& problem,
                                                   const DepthwiseLoops& loops);

}  // namespace millrace::kernels
