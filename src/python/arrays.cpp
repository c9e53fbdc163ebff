#include "python/arrays.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <memory>

#include "base/error.h"

namespace millrace::python {

namespace nb = nanobind;

std::string describe(const Array& array) {
  std::string shape;
  for (size_t i = 0; i < array.ndim(); ++i) {
    shape += (i == 0 ? "" : "x") + std::to_string(array.shape(i));
  }
  constexpr const char* kKinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const auto kind = static_cast<size_t>(array.dtype().code);
  return fmt::format("{}{} of shape {}", kind < std::size(kKinds) ? kKinds[kind] : "type",
                     array.dtype().bits, shape.empty() ? "()" : shape);
}

bool is_plain(const Array& array) {
  int64_t expected = 1;
  if (array.size() == 0) return true;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != expected) return false;
    expected *= static_cast<int64_t>(array.shape(i));
  }
  return true;
}

namespace {

template <typename Number>
nb::object own(std::vector<Number> values, const std::vector<size_t>& shape) {
  auto* owner = new std::vector<Number>(std::move(values));
  nb::capsule capsule(
      owner, [](void* memory) noexcept { delete static_cast<std::vector<Number>*>(memory); });
  return nb::cast(
      nb::ndarray<nb::numpy, Number>(owner->data(), shape.size(), shape.data(), capsule));
}

}  // namespace

api::Pictures to_pictures(const Array& images) {
  if (images.dtype() != nb::dtype<uint8_t>() || images.ndim() != 4) {
    fail_input("Pictures must be uint8 of shape count x height x width x channels, not {}.",
               describe(images));
  }
  if (!is_plain(images)) {
    fail_input("Pictures must lie in plain order; numpy.ascontiguousarray makes a copy that does.");
  }
  api::Pictures pictures = {.count = static_cast<int64_t>(images.shape(0)),
                            .height = static_cast<int64_t>(images.shape(1)),
                            .width = static_cast<int64_t>(images.shape(2)),
                            .channels = static_cast<int64_t>(images.shape(3))};
  pictures.pixels = {static_cast<const uint8_t*>(images.data()), images.size()};
  pictures.owner = std::shared_ptr<const void>(new Array(images), [](const void* array) {
    const nb::gil_scoped_acquire gil;
    delete static_cast<const Array*>(array);
  });
  return pictures;
}

std::vector<int64_t> to_labels(const Array& labels) {
  const bool is_long = labels.dtype() == nb::dtype<int64_t>();
  if ((!is_long && labels.dtype() != nb::dtype<int32_t>()) || labels.ndim() != 1 ||
      !is_plain(labels)) {
    fail_input("Labels must be int32 or int64 with one axis, not {}.", describe(labels));
  }
  std::vector<int64_t> numbers(labels.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = is_long ? static_cast<const int64_t*>(labels.data())[i]
                         : static_cast<const int32_t*>(labels.data())[i];
  }
  return numbers;
}

nb::object to_numpy(api::Rows rows) {
  const std::vector<size_t> shape = {static_cast<size_t>(rows.count),
                                     static_cast<size_t>(rows.width)};
  return own(std::move(rows.values), shape);
}

nb::object to_numpy(std::span<const int32_t> numbers) {
  return own(std::vector<int32_t>(numbers.begin(), numbers.end()), {numbers.size()});
}

nb::object to_numpy(api::NamedTensor tensor) {
  return own(std::move(tensor.values), {tensor.shape.begin(), tensor.shape.end()});
}

std::vector<api::NamedTensor> to_state(const nb::dict& arrays) {
  using Numbers = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
  std::vector<api::NamedTensor> state;
  for (const auto& [name, array] : arrays) {
    Numbers numbers;
    api::NamedTensor& tensor = state.emplace_back();
    if (!nb::try_cast(name, tensor.name, false))
      fail_input("Tensors of a state have text as names.");
    if (!nb::try_cast(array, numbers, false)) {
      fail_input("'{}' of the state is no array of float32 in plain order.", tensor.name);
    }
    for (size_t i = 0; i < numbers.ndim(); ++i) {
      tensor.shape.push_back(static_cast<int64_t>(numbers.shape(i)));
    }
    tensor.values.assign(numbers.data(), numbers.data() + numbers.size());
  }
  return state;
}

}  // namespace millrace::python
