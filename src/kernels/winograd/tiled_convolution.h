// Convolutions of 3x3 and 5x5 with stride 1 by Winograd's method, in loops of our own
// (tile_loops.h), which all three directions share: gradients of inputs are convolutions with
// weights turned round, gradients of weights the same products with tiles for depth.
#pragma once

#include <memory>
#include <string>

#include "kernels/convolution_problem.h"

namespace millrace::kernels {

struct TileLoops;

// The fastest loops that the processor has and oneDNN may use; null where there are none.
const TileLoops* tile_loops_here();

// Empty if the loops serve the problem, else why they do not.
std::string refusal_of_tiles(const ConvolutionProblem& problem, const TileLoops* loops);

// How images and weights have to lie.
graph::Layout tiled_images(const TileLoops& loops);
graph::Layout tiled_weights(const TileLoops& loops);

// A kernel for the problem's operator whose work is cut into `threads` parts. The loops serve the
// problem and outlive the kernel.
std::unique_ptr<Kernel> make_tiled_convolution(const ConvolutionProblem& problem, int threads,
                                               const TileLoops& loops);

}  // namespace millrace::kernels
