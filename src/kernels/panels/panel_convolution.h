// Convolutions as products of matrices in loops of our own (panel_loops.h), in all three
// directions, with any kernel and stride: what oneDNN has no good code for. Sums are taken in the
// same order whatever the number of threads.
#pragma once

#include <memory>
#include <string>

#include "kernels/convolution_problem.h"

namespace millrace::kernels {

struct PanelLoops;

// The fastest loops that the processor has and oneDNN may use; null where there are none.
const PanelLoops* panel_loops_here();

// Empty if the loops serve the problem, else why they do not.
std::string refusal_of_panels(const ConvolutionProblem& problem, const PanelLoops* loops);

// A kernel for the problem's operator whose work is cut into `threads` parts. The loops serve the
// problem and outlive the kernel; images and weights lie in blocks of their lanes, as
// tiled_images() and tiled_weights() of Winograd's loops do.
std::unique_ptr<Kernel> make_panel_convolution(const ConvolutionProblem& problem, int threads,
                                               const PanelLoops& loops);

}  // namespace millrace::kernels
