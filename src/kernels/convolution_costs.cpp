#include "kernels/convolution_costs.h"

#include "kernels/processor.h"

namespace millrace::kernels {
namespace {

// Nanoseconds of a product or value of each part. Fitted by tools/fit-convolutions to 561 problems
// measured with all methods in turn, minima of several runs: the 3x3 and 1x1 convolutions of
// ResNet, VGG, AlexNet, IResNet and MobileFaceNet, with images of 112 and 224 pixels and batches of
// 1 to 252, on one thread of a Zen 4 core (AVX-512, 1 MiB of L2), oneDNN 2.6.3. Together the chosen
// methods take 1.004 times what the fastest do. ONEDNN_MAX_CPU_ISA=AVX512_CORE gives the same
// figures but for bf16; with AVX2 no problem has more than one method. The cost of a conversion is
// an estimate: no choice of winograd_in_f32 was measured.
struct PartCosts {
  double direct;
  double direct_bf16;  // with instructions for it
  double direct_general;
  double products;
  double images;
  double weights;
};
constexpr PartCosts kCosts[] = {
    {0.0170, 0.00799, 0.0170, 0.0220, 0.246, 0.670},  // forward, which has no direct_general
    {0.0184, 0.00854, 0.0218, 0.0216, 0.262, 0.741},  // backward_data
    {0.0202, 0.00961, 0.0206, 0.0209, 0.514, 0.561},  // backward_weights
};
// The same with AVX2, of one thread of a Zen 3 core: direct, and winograd_tiles in place of
// winograd.
constexpr PartCosts kCostsOfAvx2[] = {
    {0.0235, 0, 0, 0.0260, 0.50, 0.95},
    {0.0245, 0, 0, 0.0260, 0.50, 0.95},
    {0.0340, 0, 0, 0.0260, 0.50, 0.95},
};
// The same processor's panels, and what strides add to direct: of kernels of 1x1, and of others.
// Medians of the strided convolutions of ResNet-50, batches of 8, processor time.
struct StridedCosts {
  double panels;
  double of_points;
  double of_others;
};
constexpr StridedCosts kStridedOfAvx2[] = {
    {0.0272, 1.10, 1.28},
    {0.0320, 1.24, 1.18},
    {0.0275, 1.08, 1.18},
};
// Where they were not measured, panels are taken to cost this much more than direct, so that they
// are chosen where `millrace tune` finds them faster, and only there.
constexpr double kPanelsOverDirect = 1.1;
// Faster in every shape that was measured.
constexpr double kDepthwiseOverDirect = 0.5;
// Where oneDNN has Winograd, ours is taken to cost this much more: it was not measured there.
constexpr double kTilesOverWinograd = 1.05;
constexpr double kEmulatedBf16 = 2.7;  // against float32, where there are no instructions for bf16
constexpr double kConversion = 0.5;    // a value from bf16 to float32 or back
constexpr double kNanosecond = 1e-9;

constexpr int64_t kTile = 4;                                 // outputs in a row of a tile
constexpr double kTileProducts = (kTile + 2) * (kTile + 2);  // of one tile, instead of 4 x 4 x 9

double product_of(const graph::Shape& shape) {
  double product = 1;
  for (const int64_t size : shape) product *= static_cast<double>(size);
  return product;
}

double positions(const ConvolutionProblem& problem) {
  const graph::Shape& y = problem.y.shape;
  return static_cast<double>(y[0] * y[2] * y[3]);
}

double tiles(const ConvolutionProblem& problem) {
  const graph::Shape& y = problem.y.shape;
  const auto across = [](int64_t size) { return (size + kTile - 1) / kTile; };
  return static_cast<double>(y[0] * across(y[2]) * across(y[3]));
}

double winograd_cost(const ConvolutionProblem& problem, const PartCosts& costs) {
  const auto inputs = static_cast<double>(problem.x.shape[1]);
  const auto outputs = static_cast<double>(problem.y.shape[1]);
  return kTileProducts *
         (tiles(problem) * (inputs * outputs * costs.products + (inputs + outputs) * costs.images) +
          inputs * outputs * costs.weights);
}

double direct_cost(const ConvolutionProblem& problem, const PartCosts& costs) {
  double cost = costs.direct;
  if (problem.halves) cost = has_native_bf16() ? costs.direct_bf16 : cost * kEmulatedBf16;
  return positions(problem) * product_of(problem.w.shape) * cost;
}

const StridedCosts& strided_costs(const ConvolutionProblem& problem) {
  return kStridedOfAvx2[static_cast<size_t>(problem.direction)];
}

double strides_cost(const ConvolutionProblem& problem) {
  if (problem.stride[0] * problem.stride[1] == 1) return 1;
  const graph::Shape& w = problem.w.shape;
  const bool points = w[w.size() - 1] * w[w.size() - 2] == 1;
  return points ? strided_costs(problem).of_points : strided_costs(problem).of_others;
}

// Without strides they are never cheaper than direct by more than what measurements differ.
double panels_cost(const ConvolutionProblem& problem, const PartCosts& costs, bool narrow) {
  if (!narrow || strides_cost(problem) == 1) return direct_cost(problem, costs) * kPanelsOverDirect;
  return positions(problem) * product_of(problem.w.shape) * strided_costs(problem).panels;
}

double cost_in_f32(const ConvolutionProblem& problem, const PartCosts& costs) {
  const double converted = product_of(problem.x.shape) + product_of(problem.y.shape);
  return static_cast<double>(parts_in_f32(problem)) * winograd_cost(part_in_f32(problem), costs) +
         converted * kConversion;
}

}  // namespace

double cost_of(const ConvolutionProblem& problem, ConvolutionMethod method) {
  const bool narrow = vector_instructions() != VectorInstructions::avx512;
  const PartCosts& costs = (narrow ? kCostsOfAvx2 : kCosts)[static_cast<size_t>(problem.direction)];
  switch (method) {
    case ConvolutionMethod::direct:
      break;
    case ConvolutionMethod::direct_general:
      return positions(problem) * product_of(problem.w.shape) * costs.direct_general * kNanosecond;
    case ConvolutionMethod::panels:
      return panels_cost(problem, costs, narrow) * kNanosecond;
    case ConvolutionMethod::depthwise:
      return direct_cost(problem, costs) * kDepthwiseOverDirect * kNanosecond;
    case ConvolutionMethod::winograd_tiles:
      return winograd_cost(problem, costs) * (narrow ? 1 : kTilesOverWinograd) * kNanosecond;
    case ConvolutionMethod::winograd:
      return winograd_cost(problem, costs) * kNanosecond;
    case ConvolutionMethod::winograd_in_f32:
      return cost_in_f32(problem, costs) * kNanosecond;
  }
  return direct_cost(problem, costs) * (narrow ? strides_cost(problem) : 1) * kNanosecond;
}

ConvolutionMethod cheapest_method(const ConvolutionProblem& problem,
                                  const std::vector<ConvolutionMethod>& methods) {
  ConvolutionMethod best = methods.at(0);
  double least = cost_of(problem, best) * kWorthwhile;
  for (size_t i = 1; i < methods.size(); ++i) {
    const double cost = cost_of(problem, methods[i]);
    if (cost >= least) continue;
    least = cost;
    best = methods[i];
  }
  return best;
}

}  // namespace millrace::kernels
