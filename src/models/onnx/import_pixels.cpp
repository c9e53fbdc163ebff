// Nodes that take single pixels out of images and add them up, which is how an exporter writes
// adaptive pooling between sizes of which one is no multiple of the other.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/onnx/exporter.h"
#include "models/onnx/importer.h"

namespace millrace::models::onnx {
namespace {

using Numbers = std::vector<int64_t>;

constexpr size_t kBatchAxis = 100, kChannelsAxis = 101;  // among the axes of Pixels
constexpr size_t kMostAxes = 8;
constexpr int64_t kMostWeights = 1 << 22;

int64_t sources_of(const graph::Shape& images) { return images[2] * images[3]; }

void require_room(int64_t elements, const graph::Shape& images) {
  if (elements < 0 || elements > kMostWeights / std::max<int64_t>(1, sources_of(images))) {
    fail_input("it takes too many pixels of {}", graph::to_string(images));
  }
}

Pixels pixels_of(graph::Value images, const graph::Shape& shape) {
  require_room(sources_of(shape), shape);
  const auto sources = static_cast<size_t>(sources_of(shape));
  Pixels pixels = {.images = images,
                   .extents = {shape[2], shape[3]},
                   .axes = {kBatchAxis, kChannelsAxis, 0, 1},
                   .weights = std::vector<float>(sources * sources)};
  for (size_t i = 0; i < sources; ++i) pixels.weights[i * sources + i] = 1;
  return pixels;
}

// A tensor has one row of weights for each element of one channel; `row` is where it begins.
template <typename Each>
void each_row(const Pixels& pixels, size_t sources, Each&& each) {
  const size_t rank = pixels.extents.size();
  Numbers at(rank, 0);
  for (size_t row = 0; row < pixels.weights.size(); row += sources) {
    each(at, row);
    for (size_t i = rank; i-- > 0;) {
      if (++at[i] < pixels.extents[i]) break;
      at[i] = 0;
    }
  }
}

// Where the element of a constant lies that meets the one of `at`, as shapes meet from behind.
size_t place_in(const graph::Shape& constant, const Pixels& pixels, const Numbers& at) {
  const size_t rank = pixels.axes.size();
  size_t place = 0;
  for (size_t i = 0; i < constant.size(); ++i) {
    const size_t axis = pixels.axes[rank - constant.size() + i];
    const bool is_own = axis < pixels.extents.size();
    place = place * static_cast<size_t>(constant[i]) +
            (is_own && constant[i] > 1 ? static_cast<size_t>(at[axis]) : 0);
  }
  return place;
}

void require_fit(const TensorData& constant, const Pixels& pixels) {
  const size_t rank = pixels.axes.size();
  bool fits = constant.shape.size() <= rank;
  for (size_t i = 0; fits && i < constant.shape.size(); ++i) {
    const size_t axis = pixels.axes[rank - constant.shape.size() + i];
    const bool is_own = axis < pixels.extents.size();
    fits = constant.shape[i] == 1 || (is_own && constant.shape[i] == pixels.extents[axis]);
  }
  if (!fits) fail_input("'{}' does not fit the pixels that it meets", constant.name);
}

class PixelReader {
 public:
  PixelReader(Importer& importer, const Node& node) : importer_(importer), node_(node) {}

  bool read() {
    Pixels pixels;
    if (node_.type == "Transpose" && begins(pixels)) {
      transpose(pixels);
    } else {
      size_t input = importer_.pixels(node_, 0) != nullptr ? 0 : 1;
      if (node_.type == "Where") input = 2;
      const Pixels* found = importer_.pixels(node_, input);
      if (found == nullptr) return false;
      pixels = *found;
      change(pixels, input);
    }
    finish(std::move(pixels));
    return true;
  }

 private:
  // With images whose pixels are gathered as soon as they are turned.
  bool begins(Pixels& pixels) const {
    const Node* next = importer_.only_reader(node_);
    if (importer_.pixels(node_, 0) != nullptr || next == nullptr || next->type != "GatherND") {
      return false;
    }
    const graph::Value images = importer_.value(node_, 0);
    const graph::Shape& shape = importer_.net().shape(images);
    if (shape.size() != 4) return false;
    pixels = pixels_of(images, shape);
    return true;
  }

  void change(Pixels& pixels, size_t input) const {
    if (node_.type == "Transpose") return transpose(pixels);
    if (node_.type == "GatherND" && input == 0) return gather(pixels);
    if (node_.type == "Gather" && input == 0) return take(pixels);
    if (node_.type == "Where") return hide(pixels);
    if (node_.type == "Add") return add(pixels, input);
    if (node_.type == "Div" && input == 0) return divide(pixels);
    if (node_.type == "ReduceMean" && input == 0) return average(pixels);
    fail_input("it is not supported for single pixels of images");
  }

  void transpose(Pixels& pixels) const {
    const Numbers order = integers_of(node_, "perm", {});
    const std::vector<size_t> axes = pixels.axes;
    Numbers sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < axes.size(); ++i) {
      if (sorted.size() != axes.size() || sorted[i] != static_cast<int64_t>(i)) {
        fail_input("its perm is no order of {} axes", axes.size());
      }
      pixels.axes[i] = axes[static_cast<size_t>(order[i])];
    }
  }

  // Pairs of row and column, in place of the two axes in front.
  void gather(Pixels& pixels) const {
    const TensorData& places = importer_.need_constant(node_, 1);
    const graph::Shape images = importer_.net().shape(pixels.images);
    const bool fits = pixels.axes == std::vector<size_t>{0, 1, kBatchAxis, kChannelsAxis} &&
                      !places.shape.empty() && places.shape.back() == 2 &&
                      places.shape.size() <= kMostAxes && integer_of(node_, "batch_dims", 0) == 0;
    if (!fits) fail_input("it is supported for pairs of row and column only");
    const Numbers numbers = places.integers();
    if (numbers.empty()) fail_input("it takes no pixels");
    require_room(std::ssize(numbers) / 2, images);
    const auto sources = static_cast<size_t>(sources_of(images));
    Pixels taken = {.images = pixels.images,
                    .extents = {places.shape.begin(), places.shape.end() - 1},
                    .axes = {},
                    .weights = {}};
    for (size_t i = 0; i < taken.extents.size(); ++i) taken.axes.push_back(i);
    taken.axes.push_back(kBatchAxis);
    taken.axes.push_back(kChannelsAxis);
    for (size_t i = 0; i < numbers.size(); i += 2) {
      int64_t row = numbers[i], column = numbers[i + 1];
      row += row < 0 ? pixels.extents[0] : 0;
      column += column < 0 ? pixels.extents[1] : 0;
      if (row < 0 || row >= pixels.extents[0] || column < 0 || column >= pixels.extents[1]) {
        fail_input("it takes pixels outside of {}", graph::to_string(images));
      }
      const auto from = pixels.weights.begin() +
                        (row * pixels.extents[1] + column) * static_cast<int64_t>(sources);
      taken.weights.insert(taken.weights.end(), from, from + static_cast<int64_t>(sources));
    }
    pixels = std::move(taken);
  }

  // One place of an axis, which goes.
  void take(Pixels& pixels) const {
    const TensorData& index = importer_.need_constant(node_, 1);
    const auto rank = static_cast<int64_t>(pixels.axes.size());
    int64_t at = integer_of(node_, "axis", 0);
    at += at < 0 ? rank : 0;
    const bool is_one = index.shape.empty() && at >= 0 && at < rank;
    const size_t axis = is_one ? pixels.axes[static_cast<size_t>(at)] : kBatchAxis;
    if (axis >= pixels.extents.size()) fail_input("it is supported for one place of pixels only");
    int64_t place = index.integers().at(0);
    place += place < 0 ? pixels.extents[axis] : 0;
    if (place < 0 || place >= pixels.extents[axis]) fail_input("its index is out of range");

    const auto sources = static_cast<size_t>(sources_of(importer_.net().shape(pixels.images)));
    std::vector<float> kept;
    each_row(pixels, sources, [&](const Numbers& of, size_t row) {
      if (of[axis] != place) return;
      const auto from = pixels.weights.begin() + static_cast<int64_t>(row);
      kept.insert(kept.end(), from, from + static_cast<int64_t>(sources));
    });
    pixels.weights = std::move(kept);
    pixels.extents.erase(pixels.extents.begin() + static_cast<int64_t>(axis));
    pixels.axes.erase(pixels.axes.begin() + at);
    for (size_t& other : pixels.axes) {
      if (other < kBatchAxis && other > axis) --other;
    }
  }

  // Zeros where a condition says so.
  void hide(Pixels& pixels) const {
    const TensorData& hidden = importer_.need_constant(node_, 0);
    const std::vector<float> zero = importer_.need_constant(node_, 1).numbers();
    if (hidden.type != ElementType::boolean || zero.size() != 1 || zero[0] != 0) {
      fail_input("only zeros in place of pixels are supported");
    }
    require_fit(hidden, pixels);
    const auto sources = static_cast<size_t>(sources_of(importer_.net().shape(pixels.images)));
    each_row(pixels, sources, [&](const Numbers& at, size_t row) {
      if (hidden.bytes[place_in(hidden.shape, pixels, at)] == std::byte{0}) return;
      std::fill_n(pixels.weights.begin() + static_cast<int64_t>(row), sources, 0.0f);
    });
  }

  void add(Pixels& pixels, size_t input) const {
    const Pixels* other = importer_.pixels(node_, 1 - input);
    if (other == nullptr || other->axes != pixels.axes || other->extents != pixels.extents ||
        other->weights.size() != pixels.weights.size()) {
      fail_input("pixels are added to others of the same images only");
    }
    std::transform(pixels.weights.begin(), pixels.weights.end(), other->weights.begin(),
                   pixels.weights.begin(), std::plus<>());
  }

  void divide(Pixels& pixels) const {
    const TensorData& divisors = importer_.need_constant(node_, 1);
    require_fit(divisors, pixels);
    const std::vector<float> numbers = divisors.numbers();
    const auto sources = static_cast<size_t>(sources_of(importer_.net().shape(pixels.images)));
    each_row(pixels, sources, [&](const Numbers& at, size_t row) {
      const float number = numbers[place_in(divisors.shape, pixels, at)];
      for (size_t i = row; i < row + sources; ++i) pixels.weights[i] /= number;
    });
  }

  // Over some of the extents, which go.
  void average(Pixels& pixels) const {
    std::vector<bool> goes(pixels.extents.size(), false);
    const Numbers named = axes_of_mean(importer_, node_, std::ssize(pixels.axes));
    if (integer_of(node_, "keepdims", 1) != 0)
      fail_input("only means that drop axes are supported");
    Pixels mean = {.images = pixels.images, .extents = {}, .axes = {}, .weights = {}};
    for (size_t i = 0; i < pixels.axes.size(); ++i) {
      const size_t axis = pixels.axes[i];
      const bool is_named = std::binary_search(named.begin(), named.end(), static_cast<int64_t>(i));
      if (is_named && axis >= goes.size()) fail_input("it averages over other axes than pixels");
      if (is_named) goes[axis] = true;
    }
    std::vector<size_t> becomes(pixels.extents.size(), 0);
    for (size_t i = 0; i < goes.size(); ++i) {
      becomes[i] = mean.extents.size();
      if (!goes[i]) mean.extents.push_back(pixels.extents[i]);
    }
    for (const size_t axis : pixels.axes) {
      if (axis >= goes.size()) mean.axes.push_back(axis);
      if (axis < goes.size() && !goes[axis]) mean.axes.push_back(becomes[axis]);
    }
    const auto sources = static_cast<size_t>(sources_of(importer_.net().shape(pixels.images)));
    mean.weights.resize(static_cast<size_t>(graph::elements_of(mean.extents)) * sources);
    if (mean.weights.empty()) fail_input("it averages over nothing");
    const auto share =
        static_cast<float>(mean.weights.size()) / static_cast<float>(pixels.weights.size());
    each_row(pixels, sources, [&](const Numbers& at, size_t row) {
      size_t place = 0;
      for (size_t i = 0; i < goes.size(); ++i) {
        if (!goes[i]) place = place * static_cast<size_t>(pixels.extents[i]) + size_t(at[i]);
      }
      for (size_t i = 0; i < sources; ++i) {
        mean.weights[place * sources + i] += share * pixels.weights[row + i];
      }
    });
    pixels = std::move(mean);
  }

  // Whether more is done with single pixels behind this node.
  bool goes_on() const {
    constexpr std::string_view kTypes[] = {"Add", "Div", "Gather", "ReduceMean", "Where"};
    const Node* next = importer_.only_reader(node_);
    return next == nullptr ||
           std::find(std::begin(kTypes), std::end(kTypes), next->type) != std::end(kTypes);
  }

  // As images where the weights are those of adaptive pooling.
  void finish(Pixels pixels) const {
    const graph::Shape& shape = importer_.net().shape(pixels.images);
    if (pixels.axes != std::vector<size_t>{kBatchAxis, kChannelsAxis, 0, 1} || goes_on()) {
      return importer_.set(node_, std::move(pixels));
    }
    const std::vector<float> rows = averaging(shape[2], pixels.extents[0]);
    const std::vector<float> columns = averaging(shape[3], pixels.extents[1]);
    const auto sources = static_cast<size_t>(sources_of(shape));
    const auto width = static_cast<size_t>(shape[3]);
    bool averages = true;
    each_row(pixels, sources, [&](const Numbers& at, size_t row) {
      for (size_t i = 0; i < sources; ++i) {
        const auto to_row = static_cast<size_t>(at[0]), to_column = static_cast<size_t>(at[1]);
        const float weight =
            rows[i / width * static_cast<size_t>(pixels.extents[0]) + to_row] *
            columns[i % width * static_cast<size_t>(pixels.extents[1]) + to_column];
        averages = averages && std::abs(pixels.weights[row + i] - weight) < 1e-6f;
      }
    });
    if (!averages) fail_input("its sums of pixels are no adaptive pooling, which is not supported");
    importer_.set(node_, importer_.net().adaptive_average_pool(pixels.images, pixels.extents[0],
                                                               pixels.extents[1]));
  }

  Importer& importer_;
  const Node& node_;
};

void read_gathered(Importer& importer, const Node& node) {
  if (!read_pixels(importer, node)) fail_input("it is supported for single pixels only");
}

constexpr NodeReader kPixelReaders[] = {
    {"Gather", read_gathered}, {"GatherND", read_gathered}, {"Where", read_gathered}};

}  // namespace

bool read_pixels(Importer& importer, const Node& node) {
  return PixelReader(importer, node).read();
}

ReadNode find_pixel_reader(std::string_view type) {
  for (const NodeReader& reader : kPixelReaders) {
    if (reader.type == type) return reader.read;
  }
  return nullptr;
}

}  // namespace millrace::models::onnx
