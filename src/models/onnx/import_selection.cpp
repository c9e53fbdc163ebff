// Nodes that take some of the channels, or all in another order: products with a matrix of ones and
// zeros that is not trained.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

using Numbers = std::vector<int64_t>;

graph::Value select(Importer& importer, const Node& node, graph::Value x, const Numbers& taken) {
  graph::Builder& net = importer.net();
  const int64_t channels = net.shape(x)[1];
  require_few(std::ssize(taken) * channels);
  const graph::Shape shape = {std::ssize(taken), channels, 1, 1};
  std::vector<float> matrix(static_cast<size_t>(graph::elements_of(shape)));
  for (size_t i = 0; i < taken.size(); ++i) {
    matrix[i * static_cast<size_t>(channels) + static_cast<size_t>(taken[i])] = 1;
  }
  const std::string name = importer.layer_name(node, nullptr);
  const graph::Value weight = net.buffer(name + ".weight", shape, 0);
  importer.take_weight(name + ".weight", TensorData::of(name + ".weight", shape, matrix));
  const Numbers one = {1, 1}, none = {0, 0};
  return net.apply("convolution", name, {x, weight},
                   {{"stride", one}, {"padding", none}, {"dilation", one}, {"groups", int64_t{1}}});
}

Numbers range(int64_t begin, int64_t end) {
  Numbers numbers(static_cast<size_t>(std::max<int64_t>(0, end - begin)));
  std::iota(numbers.begin(), numbers.end(), begin);
  return numbers;
}

// Bounds are inputs or, before opset 10, attributes.
void read_slice(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const auto list = [&](size_t input, const char* name) {
    return importer.has_input(node, input) ? importer.need_integers(node, input)
                                           : integers_of(node, name, {});
  };
  const Numbers starts = list(1, "starts"), ends = list(2, "ends"), steps = list(4, "steps");
  Numbers axes = list(3, "axes");
  if (axes.empty()) axes = range(0, std::ssize(starts));
  if (starts.size() != ends.size() || starts.size() != axes.size() || starts.size() > 4 ||
      std::any_of(steps.begin(), steps.end(), [](int64_t step) { return step != 1; })) {
    fail_input("only channels one behind the other can be cut out");
  }
  const graph::Shape shape = importer.net().shape(x);
  for (const int64_t extent : shape) require_few(extent);
  Numbers taken = range(0, shape[1]);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + 4 : axes[i];
    if (axis < 0 || axis > 3) fail_input("there is no axis {}", axes[i]);
    const int64_t size = shape[static_cast<size_t>(axis)];
    const auto place = [&](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    const Numbers kept = range(place(starts[i]), place(ends[i]));
    if (axis == 1) taken = kept;
    if (kept.empty() || (axis != 1 && std::ssize(kept) != size)) {
      fail_input("only channels one behind the other can be cut out");
    }
  }
  importer.set(node, std::ssize(taken) == shape[1] ? x : select(importer, node, x, taken));
}

void read_split(Importer& importer, const Node& node) {
  const graph::Value x = importer.value(node, 0);
  require_rank(importer, x, 4);
  const int64_t axis = integer_of(node, "axis", 0), channels = importer.net().shape(x)[1];
  const int64_t parts = std::ssize(node.outputs);
  require_few(channels);
  Numbers sizes = importer.has_input(node, 1) ? importer.need_integers(node, 1)
                                              : integers_of(node, "split", {});
  if (sizes.empty()) {
    const int64_t each = (channels + parts - 1) / parts;
    for (int64_t rest = channels; std::ssize(sizes) < parts; rest -= each) {
      sizes.push_back(std::min(each, rest));
    }
  }
  int64_t begin = 0;
  if ((axis != 1 && axis != -3) || std::ssize(sizes) != parts)
    fail_input("only channels can be parted");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > channels - begin) {
      fail_input("its parts do not fit {} channels", channels);
    }
    importer.set_output(node, i, select(importer, node, x, range(begin, begin + sizes[i])));
    begin += sizes[i];
  }
}

constexpr NodeReader kSelections[] = {{"Slice", read_slice}, {"Split", read_split}};

}  // namespace

bool read_shuffle(Importer& importer, const Node& node, graph::Value x, const Numbers& to) {
  const graph::Shape from = importer.net().shape(x);
  const Node* turn = importer.only_reader(node);
  const bool turns = turn != nullptr && turn->type == "Transpose" &&
                     integers_of(*turn, "perm", {}) == Numbers{0, 2, 1, 3, 4};
  const Node* back = turns ? importer.only_reader(*turn) : nullptr;
  if (back == nullptr || back->type != "Reshape" || from.size() != 4 || to.size() != 5)
    return false;
  require_few(from[1]);
  const int64_t groups = to[1], each = to[2];
  if (groups < 1 || each < 1 || groups > from[1] || groups * each != from[1] || to[3] != from[2] ||
      to[4] != from[3]) {
    return false;
  }
  Numbers taken;
  for (int64_t i = 0; i < from[1]; ++i) taken.push_back(i % groups * each + i / groups);
  importer.set_done(*turn);
  importer.set(*turn, select(importer, node, x, taken));  // which `back` finds in its shape
  return true;
}

ReadNode find_selection_reader(std::string_view type) {
  for (const NodeReader& reader : kSelections) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
