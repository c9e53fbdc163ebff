// Nodes that make images larger: each pixel again and again, as networks of several resolutions do.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

constexpr double kLargestFactor = 1 << 10;

// Whether pixel i of the output is pixel i / factor of the input.
bool repeats_pixels(const Node& node, double factor) {
  const std::string places = text_of(node, "coordinate_transformation_mode");
  const std::string rounding = text_of(node, "nearest_mode");
  if (node.type == "Upsample") return true;
  if (places == "asymmetric") {
    return rounding == "floor" ||
           (factor == 2 && (rounding.empty() || rounding == "round_prefer_floor"));
  }
  const bool from_middles = places.empty() || places == "half_pixel" ||
                            places == "half_pixel_symmetric" || places == "pytorch_half_pixel";
  return from_middles && rounding != "floor" && rounding != "ceil";
}

// The factor of each axis, from factors or sizes; the batch that a file was exported with says
// nothing.
std::vector<double> factors_of(Importer& importer, const Node& node, const graph::Shape& shape) {
  std::vector<double> given;
  const bool is_short = node.type == "Upsample" || node.inputs.size() == 2;  // before opset 11
  const bool has_sizes = importer.has_input(node, 3);
  if (has_sizes) {
    const std::vector<int64_t> sizes = importer.need_integers(node, 3);
    given.assign(sizes.begin(), sizes.end());
  } else if (importer.has_input(node, is_short ? 1 : 2)) {
    const std::vector<float> scales = importer.need_constant(node, is_short ? 1 : 2).numbers();
    given.assign(scales.begin(), scales.end());
  }
  const std::vector<int64_t> axes = integers_of(node, "axes", {0, 1, 2, 3});
  if (given.size() != axes.size()) fail_input("it says no factor for each axis");
  std::vector<double> factors(shape.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + 4 : axes[i];
    if (axis < 0 || axis > 3) fail_input("there is no axis {}", axes[i]);
    const auto at = static_cast<size_t>(axis);
    if (has_sizes && at == 0) continue;
    factors[at] = has_sizes ? given[i] / static_cast<double>(shape[at]) : given[i];
  }
  return factors;
}

void read_resize(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const graph::Shape shape = importer.net().shape(x);
  const std::string mode = text_of(node, "mode");
  if (!mode.empty() && mode != "nearest") {
    fail_input("it is supported only where it repeats pixels, not in the mode '{}'", mode);
  }
  const std::vector<double> factors = factors_of(importer, node, shape);
  for (size_t i = 0; i < factors.size(); ++i) {
    const double factor = factors[i], most = i < 2 ? 1 : kLargestFactor;
    const bool is_whole = factor >= 1 && factor <= most && factor == std::floor(factor);
    if (!is_whole || (factor > 1 && !repeats_pixels(node, factor))) {
      fail_input("it is supported only where it repeats pixels of images a whole number of times");
    }
  }
  const auto extent = [&](size_t axis) {
    return shape[axis] * static_cast<int64_t>(factors[axis]);
  };
  importer.set(node, importer.net().adaptive_average_pool(x, extent(2), extent(3)));
}

constexpr NodeReader kEnlarging[] = {{"Resize", read_resize}, {"Upsample", read_resize}};

}  // namespace

ReadNode find_enlarging_reader(std::string_view type) {
  for (const NodeReader& reader : kEnlarging) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
