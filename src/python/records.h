// Data sets that are objects of Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "data/record_source.h"

namespace millrace::python {

// A sequence of (image, label): uint8 of height × width × 1 or 3 and a whole number. Names of
// classes are its attribute `classes`, if it has one. It is asked with the interpreter's lock, from
// any thread. Throws InputError if it is no sequence.
std::shared_ptr<const data::RecordSource> to_records(const nanobind::object& sequence);

}  // namespace millrace::python
