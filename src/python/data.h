// Data sets of the module _millrace.
#pragma once

#include <nanobind/nanobind.h>

namespace millrace::python {

// Adds Data, DataPart and data().
void bind_data(nanobind::module_& module);

}  // namespace millrace::python
