#include "python/data.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "api/data.h"
#include "base/error.h"
#include "python/arrays.h"
#include "python/records.h"
#include "python/training.h"

namespace millrace::python {
namespace {

namespace nb = nanobind;
using namespace nb::literals;

api::Data make_data(const std::optional<std::string>& source, const std::optional<Array>& images,
                    const std::optional<Array>& labels, const nb::object& records, int64_t image,
                    double valid, uint64_t seed, const std::string& augment, int workers,
                    const std::string& bad_record) {
  if (bad_record != "fail" && bad_record != "skip") {
    fail_input("‹on_bad_record› is '{}'; choose fail or skip.", bad_record);
  }
  const api::DataOptions options = {.image = image,
                                    .valid = valid,
                                    .seed = seed,
                                    .augment = augment,
                                    .workers = workers,
                                    .skip_bad_records = bad_record == "skip"};
  const int given = (source ? 1 : 0) + (images ? 1 : 0) + (records.is_none() ? 0 : 1);
  if (given != 1 || images.has_value() != labels.has_value()) {
    fail_input("Give a data set such as \"folder:pets\", or images= and labels=, or records=.");
  }
  if (source) {
    return attended([&](std::atomic<bool>&) { return api::Data(*source, options); });
  }
  if (!records.is_none()) {
    const std::shared_ptr<const data::RecordSource> own = to_records(records);
    return without_lock([&] { return api::Data(own, options); });
  }
  api::Pictures pictures = to_pictures(*images);
  pictures.labels = to_labels(*labels);
  return without_lock([&] { return api::Data(pictures, options); });
}

std::string data_text(int64_t classes) {
  return classes == 0 ? "<data>" : fmt::format("<data of {} classes>", classes);
}

}  // namespace

void bind_data(nb::module_& module) {
  nb::class_<api::DataPart>(module, "DataPart",
                            "Data to train on or to measure on: a data set or a part of it.")
      .def_ro("classes", &api::DataPart::classes, "How many there are; 0 if it does not tell.")
      .def_ro("class_names", &api::DataPart::class_names, "In the order of the labels.")
      .def("__repr__", [](const api::DataPart& part) { return data_text(part.classes); });
  nb::class_<api::Data>(module, "Data", "A data set; made by millrace.data.")
      .def_prop_ro("train", &api::Data::train, "What is trained on.")
      .def_prop_ro("valid", &api::Data::valid, "What is held back to measure on, or None.")
      .def_prop_ro("classes", &api::Data::classes, "How many there are; 0 if it does not tell.")
      .def_prop_ro("class_names", &api::Data::class_names, "In the order of the labels.")
      .def("__repr__", [](const api::Data& data) { return data_text(data.classes()); });
  module.def(
      "data", &make_data, "source"_a = nb::none(), nb::kw_only(),
      nb::arg("images").noconvert() = nb::none(), nb::arg("labels").noconvert() = nb::none(),
      "records"_a = nb::none(), "image"_a = 0, "valid"_a = 0.0, "seed"_a = 0, "augment"_a = "auto",
      "workers"_a = 2, "on_bad_record"_a = "fail",
      "A data set: FORMAT:PATH (folder, ofrecord, recordio, idx, raw) or \"synthetic\", or\n"
      "images (uint8, count x height x width x channels) and labels (int32 or int64) in\n"
      "memory, which are borrowed, or records: a sequence of one's own of (image, label), with\n"
      "names of classes as its attribute `classes`. `valid` is the share that is held back;\n"
      "records that cannot be read end the run, or are left out with on_bad_record=\"skip\".");
}

}  // namespace millrace::python
