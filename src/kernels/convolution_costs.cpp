#include "kernels/convolution_costs.h"

#include "kernels/processor.h"

namespace millrace::kernels {
namespace {

// Nanoseconds of a product in a convolution of 1x1 kernels, of others, and of both with strides.
struct ProductCosts {
  double points;
  double others;
  double strided_points;
  double strided_others;
};
// Of a product at the points of Winograd's method, and of a value brought to or from them.
struct WinogradCosts {
  double products;
  double images;
  double weights;
};
struct MethodCosts {
  ProductCosts direct;
  double direct_bf16;  // with instructions for it
  double direct_general;
  ProductCosts panels;
  WinogradCosts winograd;
  WinogradCosts tiles;
};
// Medians, and for Winograd fits, of 211 problems measured with all methods in turn, minima of
// several runs: ResNet-50 with batches of 8 and 64, iresnet50 with 64 and VGG-16 with 28, on two
// threads of a Zen 5 processor (AVX-512, 1 MiB of L2), oneDNN 2.6.3. Together the chosen methods
// take 1.01 times what the fastest do. What our Winograd costs was fitted anew to 12 shapes of
// VGG-16 and ResNet-50, one thread, since its products bring nearer what comes next. Panels of
// points without strides are fitted as equal to direct forward and to the gradient of inputs; they
// are taken to be a little cheaper because they are at most 7 % slower anywhere and up to 28 %
// faster. For gradients of weights of such points they took 0.70 to 1.01 of the time of direct in
// 12 shapes of ResNet-50 and MobileFaceNet, measured later. What bf16 costs is in the proportion to
// float32 that a Zen 4 processor had, and the cost of a conversion is an estimate: no choice of
// winograd_in_f32 was measured.
constexpr double kPanelsOfPoints = 0.94;
constexpr MethodCosts kCosts[] = {
    // forward, which has no direct_general
    {{0.0081, 0.0082, 0.0086, 0.0107},
     0.0038,
     0.0081,
     {0.0081 * kPanelsOfPoints, 0.0090, 0.0090, 0.0092},
     {0.00989, 0.312, 0.694},
     {0.0088, 0.15, 0.80}},
    // backward_data
    {{0.0083, 0.0083, 0.0096, 0.0098},
     0.0039,
     0.0100,
     {0.0083 * kPanelsOfPoints, 0.0093, 0.0190, 0.0123},
     {0.01019, 0.301, 0.662},
     {0.0088, 0.15, 1.10}},
    // backward_weights
    {{0.0092, 0.0090, 0.0094, 0.0095},
     0.0043,
     0.0110,
     {0.0085, 0.0099, 0.0103, 0.0106},
     {0.01154, 0.543, 0.449},
     {0.0090, 0.135, 0.255}},
};
// The same with AVX2, of one thread of a Zen 3 core, where there is neither oneDNN's Winograd nor
// bf16. What strides cost are medians of the strided convolutions of ResNet-50, batches of 8,
// processor time; oneDNN's Winograd, which is never on offer there, has our figures. Without
// strides panels are never cheaper than direct by more than what measurements differ, and are
// chosen where `millrace tune` finds them faster, and only there.
constexpr MethodCosts kCostsOfAvx2[] = {
    {{0.0235, 0.0235, 0.0259, 0.0301},
     0,
     0,
     {0.0259, 0.0259, 0.0272, 0.0272},
     {0.0260, 0.50, 0.95},
     {0.0260, 0.50, 0.95}},
    {{0.0245, 0.0245, 0.0304, 0.0289},
     0,
     0,
     {0.0270, 0.0270, 0.0320, 0.0320},
     {0.0260, 0.50, 0.95},
     {0.0260, 0.50, 0.95}},
    {{0.0340, 0.0340, 0.0367, 0.0401},
     0,
     0,
     {0.0374, 0.0374, 0.0275, 0.0275},
     {0.0260, 0.50, 0.95},
     {0.0260, 0.50, 0.95}},
};
// Of depthwise loops, which were faster than direct in every shape that was measured.
constexpr double kDepthwiseOverDirect = 0.5;
constexpr double kEmulatedBf16 = 2.7;  // against float32, where there are no instructions for bf16
constexpr double kConversion = 0.25;   // a value from bf16 to float32 or back
constexpr double kNanosecond = 1e-9;

constexpr int64_t kPointsInRow = 6;  // of a tile, whatever the kernel's size
constexpr double kTileProducts = kPointsInRow * kPointsInRow;

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
  const int64_t tile = kPointsInRow + 1 - problem.w.shape.back();  // outputs in a row of one
  const auto across = [&](int64_t size) { return (size + tile - 1) / tile; };
  return static_cast<double>(y[0] * across(y[2]) * across(y[3]));
}

double winograd_cost(const ConvolutionProblem& problem, const WinogradCosts& costs) {
  const auto inputs = static_cast<double>(problem.x.shape[1]);
  const auto outputs = static_cast<double>(problem.y.shape[1]);
  return kTileProducts *
         (tiles(problem) * (inputs * outputs * costs.products + (inputs + outputs) * costs.images) +
          inputs * outputs * costs.weights);
}

double product_cost(const ConvolutionProblem& problem, const ProductCosts& costs) {
  const graph::Shape& w = problem.w.shape;
  const bool points = w[w.size() - 1] * w[w.size() - 2] == 1;
  if (problem.stride[0] * problem.stride[1] == 1) return points ? costs.points : costs.others;
  return points ? costs.strided_points : costs.strided_others;
}

double direct_cost(const ConvolutionProblem& problem, const MethodCosts& costs) {
  if (!problem.halves) return product_cost(problem, costs.direct);
  return has_native_bf16() ? costs.direct_bf16 : costs.direct.others * kEmulatedBf16;
}

double cost_in_f32(const ConvolutionProblem& problem, const WinogradCosts& costs) {
  const double converted = product_of(problem.x.shape) + product_of(problem.y.shape);
  return static_cast<double>(parts_in_f32(problem)) * winograd_cost(part_in_f32(problem), costs) +
         converted * kConversion;
}

// Nanoseconds.
double cost_by(const MethodCosts& costs, const ConvolutionProblem& problem,
               ConvolutionMethod method) {
  const double products = positions(problem) * product_of(problem.w.shape);
  switch (method) {
    case ConvolutionMethod::direct:
      break;
    case ConvolutionMethod::direct_general:
      return products * costs.direct_general;
    case ConvolutionMethod::panels:
      return products * product_cost(problem, costs.panels);
    case ConvolutionMethod::depthwise:
      return products * direct_cost(problem, costs) * kDepthwiseOverDirect;
    case ConvolutionMethod::winograd_tiles:
      return winograd_cost(problem, costs.tiles);
    case ConvolutionMethod::winograd:
      return winograd_cost(problem, costs.winograd);
    case ConvolutionMethod::winograd_in_f32:
      return cost_in_f32(problem, costs.winograd);
  }
  return products * direct_cost(problem, costs);
}

}  // namespace

double cost_of(const ConvolutionProblem& problem, ConvolutionMethod method) {
  const bool narrow = vector_instructions() != VectorInstructions::avx512;
  const auto direction = static_cast<size_t>(problem.direction);
  return cost_by(narrow ? kCostsOfAvx2[direction] : kCosts[direction], problem, method) *
         kNanosecond;
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
