// Arrays of Python as the facade takes them, and back.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <span>
#include <string>
#include <vector>

#include "api/data.h"
#include "api/model.h"

namespace millrace::python {

// Anything with DLPack's or the buffer interface, on the processor.
using Array = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;

// "uint8 of shape 4x28x28x1".
std::string describe(const Array& array);
// Whether elements lie in row-major order without gaps.
bool is_plain(const Array& array);

// Borrows the memory of uint8 count × height × width × 1 or 3, in plain order, as long as something
// uses it. Throws InputError for any other array: nothing is converted.
api::Pictures to_pictures(const Array& images);

// int32 or int64, one axis.
std::vector<int64_t> to_labels(const Array& labels);

// numpy arrays that own what they show.
nanobind::object to_numpy(api::Rows rows);
nanobind::object to_numpy(std::span<const int32_t> numbers);
nanobind::object to_numpy(api::NamedTensor tensor);

// Arrays of float32 in plain order by name, copied.
std::vector<api::NamedTensor> to_state(const nanobind::dict& arrays);

}  // namespace millrace::python
