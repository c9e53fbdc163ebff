#include "python/records.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "python/arrays.h"

namespace millrace::python {
namespace {

namespace nb = nanobind;

constexpr uint64_t kMostRecords = uint64_t{1} << 40;

class SequenceSource : public data::RecordSource {
 public:
  explicit SequenceSource(const nb::object& sequence) : sequence_(sequence) {
    if (!nb::hasattr(sequence, "__len__") || !nb::hasattr(sequence, "__getitem__")) {
      fail_input("A data set of one's own needs __len__ and __getitem__.");
    }
    count_ = nb::len(sequence);
    if (count_ > kMostRecords) fail_input("A data set cannot have {} records.", count_);
    if (nb::hasattr(sequence, "classes") &&
        !nb::try_cast(nb::object(sequence.attr("classes")), names_)) {
      fail_input("The classes of a data set of one's own must be a list of names.");
    }
  }
  ~SequenceSource() override {
    const nb::gil_scoped_acquire gil;
    sequence_.reset();
  }

  uint64_t count() const override { return count_; }

  data::Sample read(uint64_t index) const override {
    const nb::gil_scoped_acquire gil;
    try {
      return to_sample(sequence_[nb::int_(index)]);
    } catch (const nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // as KeyboardInterrupt: it ends the run
      data::fail_data("reading it raises {}: {}",
                      nb::cast<std::string>(error.type().attr("__name__")),
                      nb::str(error.value()).c_str());
    } catch (const nb::cast_error&) {
      data::fail_data("it is not an array and a number");
    }
  }

  data::RecordPlace place(uint64_t index) const override {
    return {"the data set of one's own", index, 0};
  }
  std::vector<std::string> class_names() const override { return names_; }
  int64_t classes() const override { return static_cast<int64_t>(names_.size()); }

 private:
  static data::Sample to_sample(const nb::object& item) {
    if (!nb::isinstance<nb::sequence>(item) || nb::len(item) != 2) {
      data::fail_data("it is not an image and a label");
    }
    const auto image = nb::cast<Array>(item[0], false);
    const bool fits = image.dtype() == nb::dtype<uint8_t>() && image.ndim() == 3 &&
                      (image.shape(2) == 1 || image.shape(2) == 3) && is_plain(image);
    if (!fits) {
      data::fail_data("its image is not uint8 of height x width x 1 or 3 in plain order but {}",
                      describe(image));
    }
    data::Sample sample;
    const auto* bytes = static_cast<const std::byte*>(image.data());
    sample.storage.assign(bytes, bytes + image.size());
    sample.bytes = sample.storage;
    sample.height = static_cast<int>(image.shape(0));
    sample.width = static_cast<int>(image.shape(1));
    sample.channels = static_cast<int>(image.shape(2));
    sample.label = nb::cast<int64_t>(nb::int_(item[1]));
    return sample;
  }

  nb::object sequence_;
  uint64_t count_ = 0;
  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<const data::RecordSource> to_records(const nb::object& sequence) {
  return std::make_shared<SequenceSource>(sequence);
}

}  // namespace millrace::python
