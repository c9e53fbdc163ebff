// Samples and a fixture for tests that write and read whole data sets.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/record_source.h"
#include "data/record_writer.h"
#include "support.h"

namespace millrace::data {

class FormatsTest : public DirectoryTest {
 protected:
  std::string at(const std::string& format, const std::string& name) const {
    return format + ":" + (directory_ / name).string();
  }
  void write(const std::string& specification, const std::vector<Sample>& samples) const {
    const auto writer = create_writer(specification, {});
    for (const Sample& sample : samples) writer->add(sample);
    writer->finish();
  }
  void overwrite(const std::string& name, const std::function<void(std::string&)>& change) const {
    std::string bytes = read_text(directory_ / name);
    change(bytes);
    write_text(directory_ / name, bytes);
  }
};

inline Sample encoded_sample(std::string_view bytes, int64_t label) {
  Sample sample;
  const auto view = std::as_bytes(std::span(bytes));
  sample.storage.assign(view.begin(), view.end());
  sample.bytes = sample.storage;
  sample.label = label;
  return sample;
}

inline Sample pixel_sample(int height, int width, int channels, int64_t label) {
  Sample sample;
  for (int i = 0; i < height * width * channels; ++i) {
    sample.storage.push_back(static_cast<std::byte>(i * 37 + label * 11));
  }
  sample.bytes = sample.storage;
  sample.height = height;
  sample.width = width;
  sample.channels = channels;
  sample.label = label;
  return sample;
}

inline std::string text_of(const Sample& sample) {
  return {reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()};
}

}  // namespace millrace::data
