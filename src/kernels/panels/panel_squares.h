// Gradients of weights as products of matrices (panel_convolution.h).
#pragma once

#include <memory>

#include "kernels/panels/panel_pieces.h"

namespace millrace::kernels::panels {

std::unique_ptr<Kernel> make_panel_squares(const ConvolutionProblem& problem, int threads,
                                           const PanelLoops& loops);

}  // namespace millrace::kernels::panels
