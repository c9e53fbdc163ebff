// What the methods of a convolution cost, by a formula with figures that come with the program.
//
// A method's work is a sum of parts, each with a cost of its own for every direction:
//   direct, panels            products of values, of kernels of 1x1 and others, with strides and
//                             without, each with a cost of its own
//   direct_general            products of values
//   winograd, winograd_tiles  products in tiles of 4x4 outputs (a quarter of the direct ones, but
//                             tiles at the edge count whole), values of images and gradients
//                             brought to and from tiles, and values of weights, whatever the batch
//   winograd_in_f32           the same for each part of the batch, and the conversions
// The figures are those of a thread; more threads are taken to divide all parts alike and so
// leave the choice as it is. There are figures for AVX-512 and for AVX2. Only a comparison of
// methods means something: another processor is taken to be faster or slower at all of them. Sizes
// of caches are not in it. A method that there is not for an instruction set (oneDNN's Winograd
// needs AVX-512) is never among those to choose from.
#pragma once

#include <vector>

#include "kernels/convolution_problem.h"

namespace millrace::kernels {

// Seconds on the processor that was measured, with one thread.
double cost_of(const ConvolutionProblem& problem, ConvolutionMethod method);

// The cheapest; the first of `methods`, the plain one, unless another is clearly cheaper.
ConvolutionMethod cheapest_method(const ConvolutionProblem& problem,
                                  const std::vector<ConvolutionMethod>& methods);

// What "clearly" means: below this share of the plain one.
inline constexpr double kWorthwhile = 0.95;

}  // namespace millrace::kernels
